// Callback threads, and draining them at Python's exit.
#include "callback_thread.hpp"

#include <future>
#include <vector>

#include <unistd.h>

#include <hookline/core/deadline.hpp>

#include "gil_release.hpp"
#include "live_objects.hpp"
#include "py_object.hpp"

namespace hookline::python {
namespace {

/// The maximum time that callbacks can delay Python's exit.
constexpr Milliseconds kDrainTimeout{5000};

/// The executor for futures and works. It does not own the thread, so that a future that outlives the group does not
/// join the thread when it is destroyed.
class WeakExecutor final : public Executor {
 public:
  explicit WeakExecutor(const std::shared_ptr<Executor>& thread) : thread_(thread) {}
  void post(Task task) override {
    auto thread = thread_.lock();
    if (!thread) {
      task();  // the group is destroyed: run on the posting thread
      return;
    }
    thread->post(std::move(task));
    if (thread.use_count() > 1 || !holds_gil()) return;
    const GilRelease released;
    thread.reset();
  }

 private:
  const std::weak_ptr<Executor> thread_;
};

}  // namespace

CallbackThread::~CallbackThread() {
  LiveObjects<CallbackThread>::remove(this);
  stop();
}

void CallbackThread::stop() noexcept {
  if (!executor_) return;
  if (owner_pid_ != getpid()) {
    LiveObjects<CallbackThread>::leak(std::move(executor_));
  } else if (holds_gil()) {
    const GilRelease released;
    executor_.reset();
  } else {
    executor_.reset();
  }
}

std::shared_ptr<Executor> CallbackThread::executor() {
  const std::lock_guard lock(mutex_);
  if (executor_ && owner_pid_ != getpid()) LiveObjects<CallbackThread>::leak(std::move(executor_));
  if (!executor_) {
    executor_ = std::make_shared<ThreadExecutor>("hookline-pycall");
    weak_executor_ = std::make_shared<WeakExecutor>(executor_);
    owner_pid_ = getpid();
    LiveObjects<CallbackThread>::add(this);  // not in the constructor: a forked child has an empty registry
  }
  return weak_executor_;
}

void drain_callback_threads() {
  std::vector<std::shared_ptr<Executor>> executors;
  LiveObjects<CallbackThread>::for_each([&](CallbackThread& thread) {
    const std::lock_guard lock(thread.mutex_);
    if (thread.executor_) executors.push_back(thread.executor_);
  });
  for (const auto& executor : executors) {
    const auto all_run = std::make_shared<std::promise<void>>();
    executor->post([all_run] { all_run->set_value(); });
    all_run->get_future().wait_for(kDrainTimeout);
  }
}

}  // namespace hookline::python
