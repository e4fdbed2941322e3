// What hooks lost of each gradient, found again when the buckets are cut anew.
#pragma once

#include <cstddef>
#include <map>
#include <memory>

#include "hook/named_tensors.hpp"

namespace hookline::hook {

/// A float32 for each element of each gradient, zero at first. Not synchronised.
class KeptErrors {
 public:
  /// Those of a bucket, flat, to be changed in place. InvalidArgument naming a parameter of which a loaded state has
  /// another number of elements.
  Tensor of(const GradBucket& bucket);

  /// The norm of the errors of a bucket; 0 where none are kept.
  double norm(std::size_t bucket) const;

  void save(StateWriter& to) const;
  void load(StateReader& from);

 private:
  struct Bucket {
    std::shared_ptr<const BucketLayout> layout;
    Tensor errors;
  };
  bool has_moved(const BucketLayout& layout) const;
  void take_apart(NamedTensors& loose) const;

  std::map<std::size_t, Bucket> buckets_;
  NamedTensors loose_;  ///< of parameters whose buckets have not been seen since the layout changed
};

}  // namespace hookline::hook
