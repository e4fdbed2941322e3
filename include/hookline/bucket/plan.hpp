// Which parameters share a bucket, and in which order the buckets come.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <hookline/core/dtype.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// A bucket closes once its bytes have reached the limit, so it may be larger by a part of one parameter.
struct BucketLimits {
  std::size_t first = std::size_t{1} << 20;  ///< of the first bucket of each dtype: small, so that it starts early
  std::size_t others = std::size_t{25} << 20;
};

/// What the planner knows of a parameter.
struct PlannedParameter {
  std::size_t bytes = 0;
  DType dtype = DType::f32;
  bool alone = false;  ///< gets a bucket to itself, as sparse gradients do
  bool last = false;   ///< goes to buckets behind all others
};

/// A bucket's members, as positions in the list of parameters.
using BucketMembers = std::vector<std::size_t>;

/// Cuts parameters into buckets of one dtype each. `order` lists positions in the order in which their gradients are
/// expected, each at most once; buckets come in the order in which they will be full. Pure: the same arguments give the
/// same plan on every rank. Throws InvalidArgument for a position outside, or one that comes twice.
HOOKLINE_EXPORT std::vector<BucketMembers> plan_buckets(std::span<const PlannedParameter> parameters,
                                                        std::span<const std::size_t> order,
                                                        const BucketLimits& limits = {});

/// The same in reverse order of definition, which is what a backward pass usually does.
HOOKLINE_EXPORT std::vector<BucketMembers> plan_buckets(std::span<const PlannedParameter> parameters,
                                                        const BucketLimits& limits = {});

}  // namespace hookline
