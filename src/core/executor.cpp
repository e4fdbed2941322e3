// ThreadExecutor: a task queue and its thread.
#include <hookline/core/executor.hpp>

#include <condition_variable>
#include <mutex>
#include <vector>

#include <hookline/core/call_context.hpp>

#include "core/thread.hpp"

namespace hookline {

Executor::~Executor() = default;

struct ThreadExecutor::Shared final : Executor {
  std::mutex mutex;
  std::condition_variable wakeup;
  std::vector<Task> queue;
  bool closing = false;
  std::thread thread;
  std::vector<Task> batch;  ///< accessed by the thread only, like `next`
  std::size_t next = 0;

  static thread_local std::shared_ptr<Shared> current;

  void post(Task task) override {
    bool first;
    {
      const std::lock_guard lock(mutex);
      first = queue.empty();
      queue.push_back(std::move(task));
    }
    if (first) wakeup.notify_one();
  }

  void run() {
    for (;;) {
      if (next == batch.size()) {
        std::unique_lock lock(mutex);
        wakeup.wait(lock, [&] { return !queue.empty() || closing; });
        if (queue.empty()) return;
        take_queue();
      }
      run_one();
    }
  }

  // Takes the whole queue, so that posters and the thread contend for the lock once per batch.
  void take_queue() {
    batch.clear();
    batch.swap(queue);
    next = 0;
  }

  void run_one() {
    Task task = std::move(batch[next++]);
    task();
  }
};

thread_local std::shared_ptr<ThreadExecutor::Shared> ThreadExecutor::Shared::current;

ThreadExecutor::ThreadExecutor(const std::string& name) : shared_(std::make_shared<Shared>()) {
  shared_->thread = core::start_thread(name.substr(0, 15).c_str(), [shared = shared_] {
    Shared::current = shared;
    shared->run();
  });
}

ThreadExecutor::~ThreadExecutor() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
  }
  shared_->wakeup.notify_one();
  core::join_or_detach(shared_->thread);
}

void ThreadExecutor::post(Task task) {
  const std::shared_ptr<Shared> shared = shared_;  // the task may destroy the executor before post returns
  shared->post(std::move(task));
}

std::shared_ptr<Executor> ThreadExecutor::current() { return Shared::current; }

void ThreadExecutor::run_next(Clock::time_point deadline) {
  Shared& own = *Shared::current;
  if (own.next == own.batch.size()) {
    std::unique_lock lock(own.mutex);
    if (!own.wakeup.wait_until(lock, deadline, [&] { return !own.queue.empty(); })) return;
    own.take_queue();
  }
  const ContextScope scope({});
  own.run_one();
}

}  // namespace hookline
