// Adds deadlines, failures and Ctrl-C to the waits for requests of a transport.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <list>
#include <mutex>
#include <vector>

#include <hookline/backend/transport.hpp>

namespace hookline::p2p {

/// A thread that interrupts every waited-for request ten times a second, at its deadline, and at shutdown(). After
/// shutdown(drain), messages that peers sent before the group failed may still complete their requests: a wait ends
/// when its peer has departed, or after a short time.
class Watchdog {
 public:
  /// Calls `on_tick` ten times a second while any request is waited for.
  Watchdog(int size, std::function<void()> on_tick)
      : on_tick_(std::move(on_tick)), departed_(static_cast<std::size_t>(size)) {}
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  enum class Outcome : std::uint8_t { completed, timed_out, cancelled, disconnected };

  /// Blocks until the request completes, its deadline passes, or the peer is lost (then sets `error`). Evaluates
  /// `deadline` again after every interrupt, since it may have been tightened. `ignore_shutdown` ignores shutdown().
  /// Throws only what check_interrupt() throws; the request can then be waited for again.
  Outcome wait_for(Transport& transport, Request& request, int peer, const std::function<Clock::time_point()>& deadline,
                   std::exception_ptr& error, bool ignore_shutdown = false);

  /// Interrupts all waits, so that they evaluate their deadlines.
  void interrupt_all();
  /// Cancels all waits, now and later. With `drain`, messages that have already been sent may still complete.
  void shutdown(bool drain = false);
  /// Records that a rank sends no more messages.
  void mark_departed(int rank);
  /// Keeps calling `on_tick` for about a second, even without waits.
  void keep_running();

  /// The body of the watchdog thread.
  void run();
  void stop_thread();

 private:
  struct WaitEntry {
    Request* request;
    Clock::time_point deadline;
    Clock::time_point interrupted_at{};
    Clock::time_point quiet_until{};  ///< no interrupts before this time

    void interrupt(Clock::time_point now) noexcept {
      if (now < quiet_until) return;
      interrupted_at = now;
      request->interrupt();
    }
  };

  const std::function<void()> on_tick_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::list<WaitEntry> entries_;
  Clock::time_point next_wakeup_ = Clock::time_point::max();  ///< when the thread wakes next
  int idle_ticks_ = 0;                                        ///< ticks since the last wait
  std::vector<bool> departed_;
  bool shut_down_ = false;
  Clock::time_point drain_until_;  ///< after shutdown(drain): end of the drain time
  bool stopping_ = false;
};

}  // namespace hookline::p2p
