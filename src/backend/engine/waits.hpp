// Adds deadlines, failures and Ctrl-C to the waits for requests of a transport.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::engine {

/// A thread that interrupts every waited-for request ten times a second, at its deadline, and at shutdown(). If another
/// rank has failed the group, messages that were sent to this rank before still count: with shutdown(drain) a wait ends
/// when its peer has departed, or after a short time.
class Waits {
 public:
  /// Calls `each_tick` ten times a second while any request is waited for.
  Waits(int size, std::function<void()> each_tick)
      : each_tick_(std::move(each_tick)), gone_(static_cast<std::size_t>(size)) {}
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  enum class Outcome : std::uint8_t { through, time_up, stopped, lost };

  /// Blocks until the request completes, its deadline passes, or the peer is lost (then sets `error`). Evaluates
  /// `deadline` again after every interrupt, since it may have been tightened. `even_stopped` ignores shutdown().
  /// Throws only what check_interrupt() throws; the request can then be waited for again.
  Outcome wait_for(Engine& engine, Message& message, int peer, const std::function<Clock::time_point()>& deadline,
                   std::exception_ptr& error, bool even_stopped = false);

  /// Interrupts all waits, so that they evaluate their deadlines.
  void nudge_all();
  /// Cancels all waits, now and later. With `gently`, messages that have already been sent may still complete.
  void stop(bool gently = false);
  /// Records that a rank sends no more messages.
  void set_gone(int rank);
  /// Keeps calling `each_tick` for about a second, even without waits.
  void keep_ticking();

  /// The body of the watchdog thread.
  void run();
  void end_thread();

 private:
  struct Entry {
    Message* message;
    Clock::time_point deadline;
    Clock::time_point nudged_at{};
    Clock::time_point rests_until{};  ///< no interrupts before

    void nudge(Clock::time_point now) noexcept {
      if (now < rests_until) return;
      nudged_at = now;
      message->nudge();
    }
  };

  const std::function<void()> each_tick_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<Entry> entries_;
  Clock::time_point next_ = Clock::time_point::max();  ///< when the thread wakes next
  int idle_ = 0;                                       ///< ticks since the last wait
  std::vector<bool> gone_;
  bool stopped_ = false;
  Clock::time_point gently_until_;  ///< after shutdown(drain): end of the drain time
  bool ending_ = false;
};

}  // namespace hookline::engine
