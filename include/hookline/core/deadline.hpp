// Timeouts and deadlines: their unit and their clock.
#pragma once

#include <algorithm>
#include <chrono>

namespace hookline {

/// The unit of timeouts.
using Milliseconds = std::chrono::milliseconds;
/// The monotonic clock of deadlines.
using Clock = std::chrono::steady_clock;

/// The default timeout of operations.
inline constexpr Milliseconds kDefaultTimeout = std::chrono::minutes(30);

/// The upper limit of timeouts. Longer ones are clamped, so that deadline arithmetic does not overflow.
inline constexpr Milliseconds kMaxTimeout = std::chrono::hours(24 * 365);

/// Returns the deadline of a wait that starts now.
inline Clock::time_point deadline_after(Milliseconds timeout) {
  return Clock::now() + std::clamp(timeout, Milliseconds(0), kMaxTimeout);
}

/// Returns the time until `deadline`, rounded up to milliseconds; never negative.
inline Milliseconds time_left(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<Milliseconds>(deadline - Clock::now()), Milliseconds(0));
}

}  // namespace hookline
