// Ending a long wait from outside, as Ctrl-C does in an interpreter that has native code wait for it.
#pragma once

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// While one lives, long waits of the thread that made it call `check` about ten times a second. What it throws ends
/// the wait and reaches the caller. Scopes nest; the innermost counts, and with null nothing is called.
class HOOKLINE_EXPORT InterruptScope {
 public:
  explicit InterruptScope(void (*check)()) noexcept;
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope();

 private:
  void (*outer_)();
};

/// What code that waits calls between pieces of at most kInterruptPeriod. Does nothing outside a scope.
HOOKLINE_EXPORT void check_interrupt();

inline constexpr Milliseconds kInterruptPeriod{100};

}  // namespace hookline
