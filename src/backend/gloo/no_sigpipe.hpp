// Blocks SIGPIPE, so that a write to a closed connection returns an error instead of ending the process.
#pragma once

#include <csignal>
#include <ctime>

namespace hookline::gloo_transport {

/// A scope in which SIGPIPE is blocked in this thread and in the threads it starts. The destructor discards a pending
/// SIGPIPE.
class SigpipeBlocker {
 public:
  SigpipeBlocker() noexcept {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set_, &old_mask_);
  }
  SigpipeBlocker(const SigpipeBlocker&) = delete;
  SigpipeBlocker& operator=(const SigpipeBlocker&) = delete;
  ~SigpipeBlocker() {
    if (sigismember(&old_mask_, SIGPIPE)) return;
    const timespec at_once = {};
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE)) sigtimedwait(&set_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
  }

 private:
  sigset_t set_;
  sigset_t old_mask_;
};

}  // namespace hookline::gloo_transport
