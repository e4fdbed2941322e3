// The type-independent half of Future: waiting, completing, and handing continuations to their executor.
#include <hookline/core/future.hpp>

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

void FutureStateBase::wait_until_done(Milliseconds timeout) {
  if (done()) return;
  std::unique_lock lock(mutex_);
  if (!wake_.wait_until(lock, deadline_after(timeout), [&] { return done(); })) {
    throw Timeout("a future was not done after " + std::to_string(timeout.count()) + " ms");
  }
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

// A continuation may drop the last reference to this state, so nothing of it is touched once the lock is gone.
void FutureStateBase::finish(std::unique_lock<std::mutex>& lock) {
  done_.store(true, std::memory_order_release);
  std::vector<Task> continuations = std::move(continuations_);
  const std::shared_ptr<Executor> executor = executor_;
  wake_.notify_all();
  lock.unlock();
  for (Task& task : continuations) dispatch(executor, std::move(task));
}

}  // namespace hookline::core
