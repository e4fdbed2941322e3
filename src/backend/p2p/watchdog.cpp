// The list of waited-for requests, and the thread that interrupts them.
#include "backend/p2p/watchdog.hpp"

#include <algorithm>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

namespace hookline::p2p {
namespace {

constexpr int kIdleTicks = 10;  // then the thread blocks until the next wait
constexpr int kDisconnectConfirmations = 3;
constexpr Milliseconds kDrainTime{250};
constexpr Milliseconds kShortTick{2};
constexpr Milliseconds kFinalPoll{50};  // a goodbye may overtake messages that its sender sent earlier

}  // namespace

Watchdog::Outcome Watchdog::wait_for(Transport& transport, Request& request, int peer,
                                     const std::function<Clock::time_point()>& deadline, std::exception_ptr& error,
                                     bool ignore_shutdown) {
  std::list<WaitEntry> node(1, WaitEntry{&request, deadline()});
  const auto entry = node.begin();
  {
    const std::lock_guard lock(mutex_);
    if (shut_down_ && !ignore_shutdown && Clock::now() >= drain_until_) return Outcome::cancelled;
    entries_.splice(entries_.end(), node);
    if (std::exchange(idle_ticks_, 0) > 0 || entry->deadline < next_wakeup_) wake_.notify_all();
  }
  const auto end_wait = [&](Outcome outcome) {
    const std::lock_guard lock(mutex_);
    node.splice(node.end(), entries_, entry);
    return outcome;
  };
  for (int confirmations = 0;;) {
    try {
      if (request.wait(WaitPolicy::spin)) return end_wait(Outcome::completed);
    } catch (const PeerLost&) {
      error = std::current_exception();
      return end_wait(Outcome::disconnected);
    }
    {
      const std::lock_guard lock(mutex_);
      entry->deadline = deadline();
      const Clock::time_point now = Clock::now();
      bool cancelled = shut_down_ && !ignore_shutdown;
      if (cancelled && drain_until_ > Clock::time_point()) {
        cancelled = departed_[static_cast<std::size_t>(peer)] || now >= drain_until_;
        // The request may have completed while interrupts kept ending its waits: wait once more without interrupts.
        if (cancelled && entry->quiet_until == Clock::time_point()) entry->quiet_until = now + kFinalPoll;
        cancelled = cancelled && entry->interrupted_at >= entry->quiet_until;
      }
      if (cancelled || now >= entry->deadline) {
        node.splice(node.end(), entries_, entry);
        return cancelled ? Outcome::cancelled : Outcome::timed_out;
      }
    }
    try {
      transport.throw_if_disconnected(peer);
    } catch (const PeerLost&) {  // the request may still have completed before the disconnect: confirm
      error = std::current_exception();
      if (++confirmations == kDisconnectConfirmations) return end_wait(Outcome::disconnected);
    }
    try {
      check_interrupt();
    } catch (...) {
      end_wait(Outcome::cancelled);
      throw;
    }
  }
}

void Watchdog::interrupt_all() {
  const std::lock_guard lock(mutex_);
  for (WaitEntry& entry : entries_) entry.interrupt(Clock::now());
}

void Watchdog::shutdown(bool drain) {
  const std::lock_guard lock(mutex_);
  if (!drain) {
    drain_until_ = Clock::time_point();
  } else if (!shut_down_) {
    drain_until_ = Clock::now() + kDrainTime;
  }
  shut_down_ = true;
  idle_ticks_ = 0;
  wake_.notify_all();
  for (WaitEntry& entry : entries_) entry.interrupt(Clock::now());
}

void Watchdog::mark_departed(int rank) {
  const std::lock_guard lock(mutex_);
  departed_[static_cast<std::size_t>(rank)] = true;
}

void Watchdog::keep_running() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(idle_ticks_, 0) > 0) wake_.notify_all();
}

void Watchdog::stop_thread() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  wake_.notify_all();
}

void Watchdog::run() {
  std::unique_lock lock(mutex_);
  Clock::time_point tick = Clock::now() + kInterruptPeriod;
  while (!stopping_) {
    next_wakeup_ = tick;
    const Clock::time_point earliest =
        Clock::now() + std::chrono::milliseconds(1);  // time for interrupted waits to end
    for (const WaitEntry& entry : entries_) next_wakeup_ = std::min(next_wakeup_, std::max(entry.deadline, earliest));
    if (entries_.empty() && idle_ticks_ >= kIdleTicks) {
      next_wakeup_ = Clock::time_point::max();
      wake_.wait(lock, [&] { return stopping_ || idle_ticks_ == 0; });
      tick = Clock::now() + kInterruptPeriod;
      continue;
    }
    if (shut_down_ && !entries_.empty()) next_wakeup_ = std::min(next_wakeup_, Clock::now() + kShortTick);
    wake_.wait_until(lock, next_wakeup_);
    const Clock::time_point now = Clock::now();
    for (WaitEntry& entry : entries_) {
      if (shut_down_ || now >= tick || now >= entry.deadline) entry.interrupt(now);
    }
    if (now < tick) continue;
    tick = now + kInterruptPeriod;
    ++idle_ticks_;
    if (!entries_.empty()) idle_ticks_ = 0;
    lock.unlock();
    on_tick_();
    lock.lock();
  }
}

}  // namespace hookline::p2p
