// How long things may take: the unit of every timeout and the clock that deadlines are read from.
#pragma once

#include <algorithm>
#include <chrono>

namespace hookline {

/// The unit of every timeout.
using Milliseconds = std::chrono::milliseconds;
/// What deadlines are read from: it never jumps.
using Clock = std::chrono::steady_clock;

/// How long a wait lasts when nobody said how long.
inline constexpr Milliseconds kDefaultTimeout = std::chrono::minutes(30);

/// Timeouts beyond this are cut to it, so that adding one to a point in time does not overflow.
inline constexpr Milliseconds kLongestTimeout = std::chrono::hours(24 * 365);

/// The point in time at which a wait that begins now has lasted `timeout`.
inline Clock::time_point deadline_after(Milliseconds timeout) {
  return Clock::now() + std::clamp(timeout, Milliseconds(0), kLongestTimeout);
}

/// What is left until `deadline`, rounded up so that a wait of that length reaches it; never negative.
inline Milliseconds time_left(Clock::time_point deadline) {
  return std::max(std::chrono::ceil<Milliseconds>(deadline - Clock::now()), Milliseconds(0));
}

}  // namespace hookline
