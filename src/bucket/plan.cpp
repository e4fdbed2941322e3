// The bucket plan: one open bucket per dtype, closed when it reaches its limit.
#include <hookline/bucket/plan.hpp>

#include <algorithm>
#include <map>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

void check_order(std::size_t parameters, std::span<const std::size_t> order) {
  std::vector<bool> seen(parameters);
  for (const std::size_t p : order) {
    if (p >= parameters) {
      throw InvalidArgument(
          fmt::format("plan_buckets: invalid order: expected indices below {}, got {}", parameters, p));
    }
    if (seen[p]) throw InvalidArgument(fmt::format("plan_buckets: invalid order: index {} appears twice", p));
    seen[p] = true;
  }
}

struct OpenBucket {
  std::size_t limit = 0;
  ParameterIndices indices = {};
  std::size_t bytes = 0;
  std::size_t last_position = 0;  // position of its last parameter in the order
};

void add_buckets(std::span<const PlannedParameter> parameters, std::span<const std::size_t> order, bool reduce_last,
                 const BucketLimits& limits, std::vector<ParameterIndices>& plan) {
  std::vector<OpenBucket> closed;
  std::map<DType, OpenBucket> open;
  for (std::size_t position = 0; position < order.size(); ++position) {
    const PlannedParameter& p = parameters[order[position]];
    if (p.reduce_last != reduce_last) continue;
    if (p.own_bucket) {
      closed.push_back({.indices = {order[position]}, .last_position = position});
      continue;
    }
    OpenBucket& bucket = open.try_emplace(p.dtype, OpenBucket{limits.first_bucket_bytes}).first->second;
    bucket.indices.push_back(order[position]);
    bucket.bytes += p.bytes;
    bucket.last_position = position;
    if (bucket.bytes >= bucket.limit) closed.push_back(std::exchange(bucket, OpenBucket{limits.bucket_bytes}));
  }
  for (auto& [dtype, bucket] : open) {
    if (!bucket.indices.empty()) closed.push_back(std::move(bucket));
  }
  std::ranges::sort(closed, {}, &OpenBucket::last_position);
  for (OpenBucket& bucket : closed) plan.push_back(std::move(bucket.indices));
}

}  // namespace

std::vector<ParameterIndices> plan_buckets(std::span<const PlannedParameter> parameters,
                                           std::span<const std::size_t> order, const BucketLimits& limits) {
  check_order(parameters.size(), order);
  std::vector<ParameterIndices> plan;
  for (const bool reduce_last : {false, true}) add_buckets(parameters, order, reduce_last, limits, plan);
  return plan;
}

std::vector<ParameterIndices> plan_buckets(std::span<const PlannedParameter> parameters, const BucketLimits& limits) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return plan_buckets(parameters, order, limits);
}

}  // namespace hookline
