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
          fmt::format("plan_buckets: index {} in order is out of range for {} parameters", p, parameters));
    }
    if (seen[p]) throw InvalidArgument(fmt::format("plan_buckets: order contains index {} twice", p));
    seen[p] = true;
  }
}

struct Open {
  std::size_t limit = 0;
  BucketMembers members = {};
  std::size_t bytes = 0;
  std::size_t last = 0;  // position of its last parameter in the order
};

void add_buckets(std::span<const PlannedParameter> parameters, std::span<const std::size_t> order, bool last,
                 const BucketLimits& limits, std::vector<BucketMembers>& plan) {
  std::vector<Open> closed;
  std::map<DType, Open> open;
  for (std::size_t place = 0; place < order.size(); ++place) {
    const PlannedParameter& p = parameters[order[place]];
    if (p.last != last) continue;
    if (p.alone) {
      closed.push_back({.members = {order[place]}, .last = place});
      continue;
    }
    Open& bucket = open.try_emplace(p.dtype, Open{limits.first}).first->second;
    bucket.members.push_back(order[place]);
    bucket.bytes += p.bytes;
    bucket.last = place;
    if (bucket.bytes >= bucket.limit) closed.push_back(std::exchange(bucket, Open{limits.others}));
  }
  for (auto& [dtype, bucket] : open) {
    if (!bucket.members.empty()) closed.push_back(std::move(bucket));
  }
  std::ranges::sort(closed, {}, &Open::last);
  for (Open& bucket : closed) plan.push_back(std::move(bucket.members));
}

}  // namespace

std::vector<BucketMembers> plan_buckets(std::span<const PlannedParameter> parameters,
                                        std::span<const std::size_t> order, const BucketLimits& limits) {
  check_order(parameters.size(), order);
  std::vector<BucketMembers> plan;
  for (const bool last : {false, true}) add_buckets(parameters, order, last, limits, plan);
  return plan;
}

std::vector<BucketMembers> plan_buckets(std::span<const PlannedParameter> parameters, const BucketLimits& limits) {
  std::vector<std::size_t> order(parameters.size());
  std::iota(order.rbegin(), order.rend(), std::size_t{0});
  return plan_buckets(parameters, order, limits);
}

}  // namespace hookline
