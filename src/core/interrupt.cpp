// The thread-local interrupt check.
#include <hookline/core/interrupt.hpp>

#include <utility>

namespace hookline {

namespace {

thread_local void (*current_check)() = nullptr;

}  // namespace

InterruptScope::InterruptScope(void (*check)()) noexcept : previous_(std::exchange(current_check, check)) {}

InterruptScope::~InterruptScope() { current_check = previous_; }

void check_interrupt() {
  if (current_check) current_check();
}

}  // namespace hookline
