// The beginning of a thread, and the end of one whose work may let go of what owns it.
#pragma once

#include <pthread.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline::core {

/// A thread under a name of at most 15 characters, for debuggers. ResourceError where the system gives none.
template <class F>
std::thread start_thread(const char* name, F run) {
  try {
    std::thread thread(std::move(run));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& e) {
    throw ResourceError(std::string("the thread ") + name + " cannot be started: " + e.what() +
                        "; see ulimit -u, and the limit of processes of a container");
  }
}

/// Waits for the end of a thread that was told to end. The thread itself, which ends after the task in which it came
/// here, is let go of; where none was started there is nothing to do.
inline void end_thread(std::thread& thread) {
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace hookline::core
