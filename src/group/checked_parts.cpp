// CheckedState: the first failure of a checked group, and the store key that propagates it to other ranks.
#include "group/checked_parts.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "group/abort_quietly.hpp"

namespace hookline::group {
namespace {

constexpr const char* kAborted = "checked/aborted";

}  // namespace

CheckedParts::CheckedParts(std::shared_ptr<ProcessGroup> inner, std::shared_ptr<Store> shared)
    : group(std::move(inner)), store(std::move(shared)), way_(store) {}

bool CheckedParts::close(std::exception_ptr cause) {
  const std::lock_guard lock(mutex_);
  if (cause_) return false;
  cause_ = std::move(cause);
  return true;
}

void CheckedParts::close() {
  close(std::make_exception_ptr(
      Aborted(fmt::format("the checked group was shut down on rank {}", group->rank()), {group->rank()})));
}

void CheckedParts::give_up(std::exception_ptr cause, const std::string& text) {
  if (!close(std::move(cause)) || group->size() == 1) return;
  try {
    const std::lock_guard lock(way_mutex_);
    way_->set(kAborted, fmt::format("rank {} aborted the checked group: {}", group->rank(), text));
  } catch (...) {  // the original error takes precedence
  }
}

void CheckedParts::check() const {
  const std::lock_guard lock(mutex_);
  if (cause_) std::rethrow_exception(cause_);
}

void CheckedParts::check_all(Clock::time_point& next) {
  check();
  if (Clock::now() < next) return;
  next = deadline_after(kInterruptPeriod);
  std::string text;
  {
    const InterruptScope asks_once(nullptr);  // an InterruptScope may call this function; prevent recursion
    const std::lock_guard lock(way_mutex_);
    if (!way_->check({kAborted})) return;
    text = way_->get(kAborted);
  }
  abort_quietly(*group, text);
  close(std::make_exception_ptr(Aborted(text)));
  check();
}

}  // namespace hookline::group
