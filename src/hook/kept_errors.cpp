// ResidualStore: stores residuals by bucket, and by parameter while the layout changes.
#include "hook/kept_errors.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/kernel/norm.hpp>

namespace hookline::hook {

void KeptErrors::take_apart(NamedTensors& loose) const {
  for (const auto& [index, bucket] : buckets_) {
    const BucketLayout& layout = *bucket.layout;
    for (std::size_t i = 0; i < layout.lengths.size(); ++i) {
      loose[gradient_name(layout, index, i)] = part(bucket.errors, layout.offsets[i], layout.lengths[i]);
    }
  }
}

/// True if a parameter of this layout has its residual in another bucket.
bool KeptErrors::has_moved(const BucketLayout& layout) const {
  const std::unordered_set<std::string_view> here(layout.names.begin(), layout.names.end());
  return std::any_of(buckets_.begin(), buckets_.end(), [&](const auto& kept) {
    const auto& names = kept.second.layout->names;
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return here.contains(name); });
  });
}

Tensor KeptErrors::of(const GradBucket& bucket) {
  const auto found = buckets_.find(bucket.index());
  if (found != buckets_.end() && found->second.layout == bucket.layout()) return found->second.errors;
  // Rebucketing replaces all buckets at once, between two steps. Residuals of unnamed parameters are lost.
  if (found != buckets_.end() || has_moved(*bucket.layout())) {
    if (!buckets_.begin()->second.layout->names.empty()) take_apart(loose_);
    buckets_.clear();
  }
  const BucketLayout& layout = *bucket.layout();
  Tensor errors = Tensor::zeros({bucket.buffer().numel()});
  for (std::size_t i = 0; i < layout.lengths.size(); ++i) {
    const auto kept = loose_.find(gradient_name(layout, bucket.index(), i));
    if (kept == loose_.end()) continue;
    const Tensor place = part(errors, layout.offsets[i], layout.lengths[i]);
    if (kept->second.numel() != place.numel()) {
      throw InvalidArgument(
          fmt::format("the hook's state is of another model: expected {} elements of parameter {}, got {}",
                      place.numel(), kept->first, kept->second.numel()));
    }
    place.copy_from(kept->second);
    loose_.erase(kept);
  }
  buckets_[bucket.index()] = {bucket.layout(), errors};
  return errors;
}

double KeptErrors::norm(std::size_t bucket) const {
  const auto found = buckets_.find(bucket);
  return found == buckets_.end() ? 0 : std::sqrt(squared_norm(found->second.errors).item<double>());
}

void KeptErrors::save(StateWriter& to) const {
  NamedTensors all = loose_;
  take_apart(all);
  save_tensors(to, all);
}

void KeptErrors::load(StateReader& from) {
  loose_ = load_tensors(from);
  buckets_.clear();
}

}  // namespace hookline::hook
