// What a completion hook is told about an operation that is over.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>

#include <hookline/backend/collective.hpp>
#include <hookline/core/deadline.hpp>

namespace hookline {

struct WorkInfo {
  OpType op_type = OpType::barrier;
  std::uint64_t seq = 0;  ///< counts the group's operations on this rank, from 1
  Clock::time_point time_started = {};
  Clock::time_point time_finished = {};
  /// From its start, or from the end of the operation before it in its lane where that came later.
  Clock::duration active_duration{};
  int lane = 0;
  std::uint64_t bucket = 0;       ///< of a reducer, where it belongs to one
  std::size_t bytes = 0;          ///< of this rank's inputs; of its outputs where it has none
  std::exception_ptr error = {};  ///< null where it succeeded
};

/// Called after each operation, once, one call at a time.
using OnCompletionHook = std::function<void(const WorkInfo&)>;

}  // namespace hookline
