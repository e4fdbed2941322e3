// Assignment of parameters to gradient buckets.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hookline/core/dtype.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// Bucket size limits. A bucket closes once its size reaches the limit; its last parameter may take it over the limit.
struct BucketLimits {
  std::size_t first_bucket_bytes = std::size_t{1}
                                   << 20;  ///< limit of each dtype's first bucket; small for an early start
  std::size_t bucket_bytes = std::size_t{25} << 20;
};

/// The properties of a parameter that determine its bucket.
struct PlannedParameter {
  std::size_t bytes = 0;
  DType dtype = DType::f32;
  bool own_bucket = false;   ///< placed in a bucket of its own, for sparse gradients
  bool reduce_last = false;  ///< placed in buckets after all others
};

/// The parameters of a bucket, as indices into the parameter list.
using ParameterIndices = std::vector<std::size_t>;

/// Assigns parameters to buckets of one dtype each. `order` lists parameter indices in the expected order of their
/// gradients, each at most once; the buckets are returned in the order in which they become full. Deterministic: equal
/// arguments give equal plans on all ranks. Throws InvalidArgument for an index that is out of range or repeated.
HOOKLINE_EXPORT std::vector<ParameterIndices> plan_buckets(std::span<const PlannedParameter> parameters,
                                                           std::span<const std::size_t> order,
                                                           const BucketLimits& limits = {});

/// As above, in reverse order of definition, the usual order of a backward pass.
HOOKLINE_EXPORT std::vector<ParameterIndices> plan_buckets(std::span<const PlannedParameter> parameters,
                                                           const BucketLimits& limits = {});

}  // namespace hookline
