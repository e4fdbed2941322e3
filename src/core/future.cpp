// The type-independent part of Future: waiting, completion and dispatch of continuations.
#include <hookline/core/future.hpp>

#include <algorithm>

#include <hookline/core/interrupt.hpp>

namespace hookline::core {
namespace {

void dispatch(const std::shared_ptr<Executor>& executor, Task task) {
  if (executor) {
    executor->post(std::move(task));
  } else {
    task();
  }
}

}  // namespace

FutureStateBase::FutureStateBase(std::shared_ptr<Executor> executor) : executor_(std::move(executor)) {}
FutureStateBase::~FutureStateBase() = default;

bool FutureStateBase::wait_until(Clock::time_point deadline) {
  while (!done()) {
    {
      std::unique_lock lock(mutex_);
      const auto next_check = std::min(deadline, deadline_after(kInterruptPeriod));
      if (completed_.wait_until(lock, next_check, [&] { return done(); })) return true;
    }
    if (Clock::now() >= deadline) return false;
    check_interrupt();  // runs arbitrary code, so not under the lock
  }
  return true;
}

void FutureStateBase::on_done(Task task) {
  {
    const std::lock_guard lock(mutex_);
    if (!done()) {
      continuations_.push_back(std::move(task));
      return;
    }
  }
  dispatch(executor_, std::move(task));
}

// A continuation may destroy this object, so members are not accessed after unlocking.
void FutureStateBase::finish(std::unique_lock<std::mutex>& lock) {
  done_.store(true, std::memory_order_release);
  std::vector<Task> continuations = std::move(continuations_);
  const std::shared_ptr<Executor> executor = executor_;
  completed_.notify_all();
  lock.unlock();
  for (Task& task : continuations) dispatch(executor, std::move(task));
}

}  // namespace hookline::core
