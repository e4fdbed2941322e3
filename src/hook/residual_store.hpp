// ResidualStore: residuals of error feedback, which survive rebucketing.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "hook/named_tensors.hpp"

namespace hookline::hook {

/// One float32 per element of each gradient, initially zero. Not thread-safe.
class ResidualStore {
 public:
  /// Returns the flat residual of a bucket, to be updated in place. Throws InvalidArgument naming a parameter whose
  /// size differs in a loaded state.
  Tensor residual_of(const GradBucket& bucket);

  /// Returns the norm of a bucket's residual; 0 if there is none.
  double norm(std::size_t bucket) const;

  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  struct Bucket {
    std::shared_ptr<const BucketLayout> layout;
    Tensor residual;
  };
  bool was_rebucketed(const BucketLayout& layout) const;
  void split_by_parameter(TensorsByName& unassigned) const;

  std::map<std::size_t, Bucket> buckets_;
  TensorsByName unassigned_;  ///< by parameter, until a bucket of the new layout takes them over
};

}  // namespace hookline::hook
