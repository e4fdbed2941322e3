// The list of waited-for requests, and the thread that interrupts them.
#include "backend/engine/waits.hpp"

#include <algorithm>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

namespace hookline::engine {
namespace {

constexpr int kIdleTicks = 10;  // then the thread blocks until the next wait
constexpr int kSuspicions = 3;
constexpr Milliseconds kGently{250};
constexpr Milliseconds kShortTick{2};
constexpr Milliseconds kLastLook{50};  // a goodbye may overtake messages that the rank sent before

}  // namespace

Waits::Outcome Waits::wait_for(Engine& engine, Message& message, int peer,
                               const std::function<Clock::time_point()>& deadline, std::exception_ptr& error,
                               bool even_stopped) {
  std::list<Entry> own(1, Entry{&message, deadline()});
  const auto entry = own.begin();
  {
    const std::lock_guard lock(mutex_);
    if (stopped_ && !even_stopped && Clock::now() >= gently_until_) return Outcome::stopped;
    entries_.splice(entries_.end(), own);
    if (std::exchange(idle_, 0) > 0 || entry->deadline < next_) wake_.notify_all();
  }
  const auto leave = [&](Outcome outcome) {
    const std::lock_guard lock(mutex_);
    own.splice(own.end(), entries_, entry);
    return outcome;
  };
  for (int suspicions = 0;;) {
    try {
      if (message.wait(true)) return leave(Outcome::through);
    } catch (const PeerLost&) {
      error = std::current_exception();
      return leave(Outcome::lost);
    }
    {
      const std::lock_guard lock(mutex_);
      entry->deadline = deadline();
      const Clock::time_point now = Clock::now();
      bool ended = stopped_ && !even_stopped;
      if (ended && gently_until_ > Clock::time_point()) {
        ended = gone_[static_cast<std::size_t>(peer)] || now >= gently_until_;
        // The request may have completed while interrupts kept ending its waits: wait once more without interrupts.
        if (ended && entry->rests_until == Clock::time_point()) entry->rests_until = now + kLastLook;
        ended = ended && entry->nudged_at >= entry->rests_until;
      }
      if (ended || now >= entry->deadline) {
        own.splice(own.end(), entries_, entry);
        return ended ? Outcome::stopped : Outcome::time_up;
      }
    }
    try {
      engine.check(peer);
    } catch (const PeerLost&) {  // the request may still have completed before the disconnect: confirm
      error = std::current_exception();
      if (++suspicions == kSuspicions) return leave(Outcome::lost);
    }
    try {
      check_interrupt();
    } catch (...) {
      leave(Outcome::stopped);
      throw;
    }
  }
}

void Waits::nudge_all() {
  const std::lock_guard lock(mutex_);
  for (Entry& entry : entries_) entry.nudge(Clock::now());
}

void Waits::stop(bool gently) {
  const std::lock_guard lock(mutex_);
  if (!gently) {
    gently_until_ = Clock::time_point();
  } else if (!stopped_) {
    gently_until_ = Clock::now() + kGently;
  }
  stopped_ = true;
  idle_ = 0;
  wake_.notify_all();
  for (Entry& entry : entries_) entry.nudge(Clock::now());
}

void Waits::set_gone(int rank) {
  const std::lock_guard lock(mutex_);
  gone_[static_cast<std::size_t>(rank)] = true;
}

void Waits::keep_ticking() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(idle_, 0) > 0) wake_.notify_all();
}

void Waits::end_thread() {
  const std::lock_guard lock(mutex_);
  ending_ = true;
  wake_.notify_all();
}

void Waits::run() {
  std::unique_lock lock(mutex_);
  Clock::time_point tick = Clock::now() + kInterruptPeriod;
  while (!ending_) {
    next_ = tick;
    const Clock::time_point soonest = Clock::now() + std::chrono::milliseconds(1);  // time for interrupted waits to end
    for (const Entry& entry : entries_) next_ = std::min(next_, std::max(entry.deadline, soonest));
    if (entries_.empty() && idle_ >= kIdleTicks) {
      next_ = Clock::time_point::max();
      wake_.wait(lock, [&] { return ending_ || idle_ == 0; });
      tick = Clock::now() + kInterruptPeriod;
      continue;
    }
    if (stopped_ && !entries_.empty()) next_ = std::min(next_, Clock::now() + kShortTick);
    wake_.wait_until(lock, next_);
    const Clock::time_point now = Clock::now();
    for (Entry& entry : entries_) {
      if (stopped_ || now >= tick || now >= entry.deadline) entry.nudge(now);
    }
    if (now < tick) continue;
    tick = now + kInterruptPeriod;
    ++idle_;
    if (!entries_.empty()) idle_ = 0;
    lock.unlock();
    each_tick_();
    lock.lock();
  }
}

}  // namespace hookline::engine
