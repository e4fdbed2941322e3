// Blocks SIGPIPE, so that a write to a closed connection returns an error instead of ending the process.
#pragma once

#include <csignal>
#include <ctime>

namespace hookline::gloo_engine {

/// A scope in which SIGPIPE is blocked in this thread and in the threads it starts. The destructor discards a pending
/// SIGPIPE.
class NoSigpipe {
 public:
  NoSigpipe() noexcept {
    sigemptyset(&set_);
    sigaddset(&set_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;
  ~NoSigpipe() {
    if (sigismember(&before_, SIGPIPE)) return;
    const timespec at_once = {};
    sigset_t pending;
    sigpending(&pending);
    if (sigismember(&pending, SIGPIPE)) sigtimedwait(&set_, nullptr, &at_once);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t set_;
  sigset_t before_;
};

}  // namespace hookline::gloo_engine
