// The error message of monitored_barrier.
#pragma once

#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/deadline.hpp>

namespace hookline::backend {

/// Returns the message of a failed monitored_barrier, in PyTorch's wording so that log searches find it.
inline std::string monitored_barrier_error(int rank, std::vector<int> missing, bool all_ranks, Milliseconds waited) {
  if (!all_ranks) missing.resize(1);
  return fmt::format("[Rank {}]: Rank{} {} failed to pass monitoredBarrier in {} ms: did not join", rank,
                     missing.size() > 1 ? "s" : "", fmt::join(missing, ", "), waited.count());
}

}  // namespace hookline::backend
