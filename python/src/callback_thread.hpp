// The callback thread of a group: runs future continuations, Python communication hooks and completion hooks.
#pragma once

#include <memory>
#include <mutex>

#include <sys/types.h>

#include <hookline/core/executor.hpp>

namespace hookline::python {

/// Started on first use. stop() joins the thread, which may need the GIL, so it releases the GIL meanwhile. All
/// callback threads are drained at Python's exit.
class CallbackThread {
 public:
  CallbackThread() = default;
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;
  ~CallbackThread();

  /// The executor may outlive this object; tasks posted after stop() run on the posting thread. A forked child gets its
  /// own thread.
  std::shared_ptr<Executor> executor();
  /// Runs the posted tasks and joins the thread. In a forked child, which does not have the thread, leaks it.
  void stop() noexcept;

 private:
  friend void drain_callback_threads();

  std::mutex mutex_;
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Executor> weak_executor_;
  pid_t owner_pid_ = 0;
};

/// Waits, up to a timeout, until all posted callbacks have run. Call without the GIL.
void drain_callback_threads();

}  // namespace hookline::python
