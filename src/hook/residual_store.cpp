// ResidualStore: stores residuals by bucket, and by parameter while the layout changes.
#include "hook/residual_store.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_set>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/kernel/norm.hpp>

namespace hookline::hook {

void ResidualStore::split_by_parameter(TensorsByName& unassigned) const {
  for (const auto& [index, bucket] : buckets_) {
    const BucketLayout& layout = *bucket.layout;
    for (std::size_t i = 0; i < layout.lengths.size(); ++i) {
      unassigned[gradient_name(layout, index, i)] = flat_slice(bucket.residual, layout.offsets[i], layout.lengths[i]);
    }
  }
}

/// True if a parameter of this layout has its residual in another bucket.
bool ResidualStore::was_rebucketed(const BucketLayout& layout) const {
  const std::unordered_set<std::string_view> here(layout.names.begin(), layout.names.end());
  return std::any_of(buckets_.begin(), buckets_.end(), [&](const auto& kept) {
    const auto& names = kept.second.layout->names;
    return std::any_of(names.begin(), names.end(), [&](const std::string& name) { return here.contains(name); });
  });
}

Tensor ResidualStore::residual_of(const GradBucket& bucket) {
  const auto found = buckets_.find(bucket.index());
  if (found != buckets_.end() && found->second.layout == bucket.layout()) return found->second.residual;
  // Rebucketing replaces all buckets at once, between two steps. Residuals of unnamed parameters are lost.
  if (found != buckets_.end() || was_rebucketed(*bucket.layout())) {
    if (!buckets_.begin()->second.layout->names.empty()) split_by_parameter(unassigned_);
    buckets_.clear();
  }
  const BucketLayout& layout = *bucket.layout();
  Tensor residual = Tensor::zeros({bucket.buffer().numel()});
  for (std::size_t i = 0; i < layout.lengths.size(); ++i) {
    const auto saved = unassigned_.find(gradient_name(layout, bucket.index(), i));
    if (saved == unassigned_.end()) continue;
    const Tensor slice = flat_slice(residual, layout.offsets[i], layout.lengths[i]);
    if (saved->second.numel() != slice.numel()) {
      throw InvalidArgument(
          fmt::format("error feedback: the loaded state does not match the model: expected {} residuals for parameter "
                      "{}, got {}. Load a state that was saved with the same model.",
                      slice.numel(), saved->first, saved->second.numel()));
    }
    slice.copy_from(saved->second);
    unassigned_.erase(saved);
  }
  buckets_[bucket.index()] = {bucket.layout(), residual};
  return residual;
}

double ResidualStore::norm(std::size_t bucket) const {
  const auto found = buckets_.find(bucket);
  return found == buckets_.end() ? 0 : std::sqrt(squared_norm(found->second.residual).item<double>());
}

void ResidualStore::save(StateWriter& writer) const {
  TensorsByName all = unassigned_;
  split_by_parameter(all);
  save_tensors(writer, all);
}

void ResidualStore::load(StateReader& reader) {
  unassigned_ = load_tensors(reader);
  buckets_.clear();
}

}  // namespace hookline::hook
