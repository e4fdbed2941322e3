// Waiting for messages of an engine, which know nothing of deadlines, of failures elsewhere, or of Ctrl-C.
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

/// Nudges every message that somebody waits for: ten times a second, at deadlines, and once and for all at stop(). When
/// somebody else has broken the group, what had been sent to this rank before still counts: a message is then waited
/// for until its sender has said that it is gone, too, or for a short time.
class Waits {
 public:
  /// `each_tick` is called ten times a second while anything is waited for.
  Waits(int size, std::function<void()> each_tick)
      : each_tick_(std::move(each_tick)), gone_(static_cast<std::size_t>(size)) {}
  Waits(const Waits&) = delete;
  Waits& operator=(const Waits&) = delete;

  enum class Outcome : std::uint8_t { through, time_up, stopped, lost };

  /// What becomes of a message. What it throws comes from check_interrupt: somebody else may then wait for the message.
  /// `deadline` is asked for again after every nudge, as it may be brought forward. Where the peer is lost, `error`
  /// is set. `even_stopped`: also after stop().
  Outcome wait_for(Engine& engine, Message& message, int peer, const std::function<Clock::time_point()>& deadline,
                   std::exception_ptr& error, bool even_stopped = false);

  /// Has all who wait look at their deadlines.
  void nudge_all();
  /// Ends every wait, now and later; or, gently, every one that can come to nothing.
  void stop(bool gently = false);
  /// The rank sends nothing more.
  void set_gone(int rank);
  /// Has each_tick called ten times a second for a while, though nobody waits.
  void keep_ticking();

  /// The body of the thread that nudges.
  void run();
  void end_thread();

 private:
  struct Entry {
    Message* message;
    Clock::time_point deadline;
    Clock::time_point nudged_at{};
    Clock::time_point rests_until{};  ///< not to be nudged before

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
  Clock::time_point next_ = Clock::time_point::max();  ///< when the thread looks next
  int idle_ = 0;                                       ///< ticks since somebody waited
  std::vector<bool> gone_;
  bool stopped_ = false;
  Clock::time_point gently_until_;  ///< while stopped
  bool ending_ = false;
};

}  // namespace hookline::engine
