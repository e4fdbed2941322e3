// CheckedState: the first failure of a checked group, and the store key that propagates it to other ranks.
#include "group/checked_state.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "group/abort_quietly.hpp"

namespace hookline::group {
namespace {

constexpr const char* kAbortedKey = "checked/aborted";

}  // namespace

CheckedState::CheckedState(std::shared_ptr<ProcessGroup> inner_group, std::shared_ptr<Store> shared_store)
    : inner(std::move(inner_group)), store(std::move(shared_store)), abort_store_(store) {}

bool CheckedState::close(std::exception_ptr cause) {
  const std::lock_guard lock(mutex_);
  if (cause_) return false;
  cause_ = std::move(cause);
  return true;
}

void CheckedState::close() {
  close(std::make_exception_ptr(
      Aborted(fmt::format("the checked group was shut down on rank {}", inner->rank()), {inner->rank()})));
}

void CheckedState::abort_all(std::exception_ptr cause, const std::string& text) {
  if (!close(std::move(cause)) || inner->size() == 1) return;
  try {
    const std::lock_guard lock(abort_store_mutex_);
    abort_store_->set(kAbortedKey, fmt::format("rank {} aborted the checked group: {}", inner->rank(), text));
  } catch (...) {  // the original error takes precedence
  }
}

void CheckedState::throw_if_closed() const {
  const std::lock_guard lock(mutex_);
  if (cause_) std::rethrow_exception(cause_);
}

void CheckedState::poll_abort(Clock::time_point& next_poll) {
  throw_if_closed();
  if (Clock::now() < next_poll) return;
  next_poll = deadline_after(kInterruptPeriod);
  std::string text;
  {
    const InterruptScope no_interrupts(nullptr);  // an InterruptScope may call this function; prevent recursion
    const std::lock_guard lock(abort_store_mutex_);
    if (!abort_store_->check({kAbortedKey})) return;
    text = abort_store_->get(kAbortedKey);
  }
  abort_quietly(*inner, text);
  close(std::make_exception_ptr(Aborted(text)));
  throw_if_closed();
}

}  // namespace hookline::group
