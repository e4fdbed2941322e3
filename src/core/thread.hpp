// Starting named threads, and ending threads that may destroy their own owner.
#pragma once

#include <pthread.h>

#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include <hookline/core/error.hpp>

namespace hookline::core {

/// Starts a thread with a name of at most 15 characters. Throws ResourceError if the system has no thread left.
template <class F>
std::thread start_thread(const char* name, F body) {
  try {
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    return thread;
  } catch (const std::system_error& e) {
    throw ResourceError(std::string("cannot start the thread ") + name + ": " + e.what() +
                        ". Raise the limit on processes (ulimit -u, or the pids limit of the container).");
  }
}

/// Joins a thread that was told to stop; detaches it if called on that thread. Does nothing if it was never started.
inline void join_or_detach(std::thread& thread) {
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    thread.detach();
  } else {
    thread.join();
  }
}

}  // namespace hookline::core
