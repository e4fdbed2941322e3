// Kept errors: whole buckets while the layout lasts, single parameters in between.
#include <hookline/hook/kept_errors.hpp>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

namespace hookline {
namespace {

// Parameters that nobody named are known by their place.
std::string name_in(const BucketLayout& layout, std::size_t bucket, std::size_t i) {
  return i < layout.names.size() ? layout.names[i] : fmt::format("gradient {} of bucket {}", i, bucket);
}

Tensor part(const Tensor& errors, const BucketLayout& layout, std::size_t i) {
  const auto begin = static_cast<std::int64_t>(layout.offsets[i]);
  return errors.slice(0, begin, begin + static_cast<std::int64_t>(layout.lengths[i]));
}

}  // namespace

void KeptErrors::take_apart(const std::map<std::size_t, Bucket>& buckets, Loose& loose) {
  for (const auto& [index, bucket] : buckets) {
    for (std::size_t i = 0; i < bucket.layout->lengths.size(); ++i) {
      loose[name_in(*bucket.layout, index, i)] = part(bucket.errors, *bucket.layout, i);
    }
  }
}

Tensor KeptErrors::of(const GradBucket& bucket) {
  const auto found = buckets_.find(bucket.index());
  if (found != buckets_.end()) {
    if (found->second.layout == bucket.layout()) return found->second.errors;
    // All buckets are cut anew at once, between two steps. Parameters without a name cannot be found again.
    if (!found->second.layout->names.empty()) take_apart(buckets_, loose_);
    buckets_.clear();
  }
  const BucketLayout& layout = *bucket.layout();
  Tensor errors = Tensor::zeros({bucket.buffer().numel()});
  for (std::size_t i = 0; i < layout.lengths.size(); ++i) {
    const auto kept = loose_.find(name_in(layout, bucket.index(), i));
    if (kept == loose_.end()) continue;
    const Tensor place = part(errors, layout, i);
    if (kept->second.numel() != place.numel()) {
      throw InvalidArgument(
          fmt::format("the hook's state is of another model: it has {} elements of {}, which has {} here",
                      kept->second.numel(), kept->first, place.numel()));
    }
    place.copy_from(kept->second);
    loose_.erase(kept);
  }
  buckets_[bucket.index()] = {bucket.layout(), errors};
  return errors;
}

void KeptErrors::save(StateWriter& to) const {
  Loose all = loose_;
  take_apart(buckets_, all);
  to.number(all.size());
  for (const auto& [name, errors] : all) {
    to.text(name);
    to.tensor(errors);
  }
}

void KeptErrors::load(StateReader& from) {
  Loose all;
  for (std::uint64_t left = from.number(); left > 0; --left) {
    const std::string name = from.text();
    all[name] = from.tensor().flatten();
    if (all[name].dtype() != DType::f32) {
      throw InvalidArgument(fmt::format("the hook's state has {} of {}", to_string(all[name]), name));
    }
  }
  buckets_.clear();
  loose_ = std::move(all);
}

}  // namespace hookline
