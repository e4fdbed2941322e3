// ThreadExecutor: a queue, a condition variable and one thread.
#include <hookline/core/executor.hpp>

#include <condition_variable>
#include <mutex>
#include <vector>

#include "core/thread.hpp"

namespace hookline {

Executor::~Executor() = default;

struct ThreadExecutor::Shared {
  std::mutex mutex;
  std::condition_variable wake;
  std::vector<Task> queue;
  bool closing = false;
  std::thread thread;

  // The queue is taken whole, so that the poster and the runner meet at the lock once a batch.
  void run() {
    std::vector<Task> batch;
    for (;;) {
      {
        std::unique_lock lock(mutex);
        wake.wait(lock, [&] { return !queue.empty() || closing; });
        if (queue.empty()) return;
        batch.swap(queue);
      }
      for (Task& task : batch) task();
      batch.clear();
    }
  }
};

ThreadExecutor::ThreadExecutor(const std::string& name) : shared_(std::make_shared<Shared>()) {
  shared_->thread = core::start_thread(name.substr(0, 15).c_str(), [shared = shared_] { shared->run(); });
}

ThreadExecutor::~ThreadExecutor() {
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->closing = true;
  }
  shared_->wake.notify_one();
  core::end_thread(shared_->thread);
}

void ThreadExecutor::post(Task task) {
  const std::shared_ptr<Shared> shared = shared_;  // the task may drop the executor before this has returned
  bool first;
  {
    const std::lock_guard lock(shared->mutex);
    first = shared->queue.empty();
    shared->queue.push_back(std::move(task));
  }
  if (first) shared->wake.notify_one();
}

}  // namespace hookline
