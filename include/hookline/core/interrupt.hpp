// Interruption of long waits, such as by Ctrl-C in a Python interpreter.
#pragma once

#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// Makes long waits of the current thread call `check` about every kInterruptPeriod while the scope lives. An exception
/// thrown by `check` ends the wait and propagates to its caller. Scopes nest; the innermost applies, and a null `check`
/// disables interruption.
class HOOKLINE_EXPORT InterruptScope {
 public:
  explicit InterruptScope(void (*check)()) noexcept;
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  ~InterruptScope();

 private:
  void (*previous_)();
};

/// Calls the `check` of the innermost scope, if any. Waiting code calls it at least every kInterruptPeriod.
HOOKLINE_EXPORT void check_interrupt();

inline constexpr Milliseconds kInterruptPeriod{100};

}  // namespace hookline
