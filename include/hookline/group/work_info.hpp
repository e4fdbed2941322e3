// WorkInfo: the argument of completion hooks.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>

#include <hookline/backend/operation.hpp>
#include <hookline/core/deadline.hpp>

namespace hookline {

struct WorkInfo {
  OpType op_type = OpType::barrier;
  std::uint64_t seq = 0;  ///< sequence number of the operation in the group on this rank, from 1
  Clock::time_point time_started = {};
  Clock::time_point time_finished = {};
  /// Time to completion from the operation's start, or from the end of the lane's previous operation if that is later.
  Clock::duration active_duration{};
  int lane = 0;
  std::uint64_t bucket = 0;       ///< index of the reducer's bucket; 0 outside a reducer
  std::size_t bytes = 0;          ///< size of this rank's inputs, or of its outputs if it has no inputs
  std::exception_ptr error = {};  ///< null on success
};

/// Runs once after each operation; calls do not overlap.
using OnCompletionHook = std::function<void(const WorkInfo&)>;

}  // namespace hookline
