// The thread on which a group's Python callbacks run: futures' continuations, Python hooks' and completion hooks.
#pragma once

#include <memory>
#include <mutex>

#include <sys/types.h>

#include <hookline/core/executor.hpp>

namespace hookline::python {

/// Started when it is first asked for. Its end waits for the thread, which may want the GIL: end() lets go of it
/// meanwhile. At the exit of Python every such thread is drained.
class CallbackThread {
 public:
  CallbackThread() = default;
  CallbackThread(const CallbackThread&) = delete;
  CallbackThread& operator=(const CallbackThread&) = delete;
  ~CallbackThread();

  /// May be kept for longer than this; tasks posted after the end run in the thread that posts them. A forked child
  /// gets a thread of its own.
  std::shared_ptr<Executor> executor();
  /// Runs what was posted and joins the thread; in a forked child, which has no such thread, leaves all as it is.
  void end() noexcept;

 private:
  friend void drain_callback_threads();

  std::mutex mutex_;
  std::shared_ptr<Executor> executor_;
  std::shared_ptr<Executor> handle_;
  pid_t started_in_ = 0;  ///< the process that has the thread
};

/// Waits, for a while, until the callbacks that were due have run. Without the GIL.
void drain_callback_threads();

}  // namespace hookline::python
