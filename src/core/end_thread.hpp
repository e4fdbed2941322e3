// The end of a thread whose work may let go of what owns it.
#pragma once

#include <thread>

namespace hookline::core {

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
