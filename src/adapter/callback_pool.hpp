// A thread pool for callbacks that may block. It grows with the number of blocked callbacks.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

#include <hookline/core/deadline.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/core/export.hpp>

namespace hookline::adapter {

/// Completes futures whose callbacks are user code. A callback may wait for another future that the pool completes.
/// Tasks start in posting order. A forked child has its own pool.
class HOOKLINE_EXPORT CallbackPool final : public Executor {
 public:
  /// Returns the pool of the process. Never destroyed.
  static CallbackPool& instance();

  void post(Task task) override;
  /// Drops pending and future tasks, then blocks until the running ones end, at most for `timeout`.
  void close(Milliseconds timeout);

 private:
  void run_worker();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable task_ended_;
  std::deque<Task> tasks_;
  std::size_t idle_threads_ = 0;
  std::size_t running_tasks_ = 0;
  bool closed_ = false;
};

}  // namespace hookline::adapter
