// Threads for callbacks that may block: as many as are blocked at the same time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

#include <hookline/core/deadline.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/core/export.hpp>

namespace hookline::adapter {

/// Where futures of a framework are completed whose callbacks are the user's: one may wait for another future that is
/// completed here, too. Tasks start in the order in which they were posted. A forked child has a pool of its own.
class HOOKLINE_EXPORT CallbackPool final : public Executor {
 public:
  /// The process's; never destroyed.
  static CallbackPool& instance();

  void post(Task task) override;
  /// Drops what has not begun and all that comes later, and waits for what is under way, at most so long.
  void close(Milliseconds timeout);

 private:
  void serve();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable ended_;
  std::deque<Task> tasks_;
  std::size_t idle_ = 0;
  std::size_t running_ = 0;
  bool closed_ = false;
};

}  // namespace hookline::adapter
