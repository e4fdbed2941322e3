// Who drives a lane, and what its thread does when nobody else comes.
#include "backend/engine/lane.hpp"

#include <algorithm>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/engine/station.hpp"
#include "core/thread.hpp"

namespace hookline::engine {
namespace {

// How long a script for which nobody waits may lie before the lane's thread sees to it: who waits at once should not
// find it taken. While scripts come, the thread looks again that often by itself, as waking it costs more than that.
constexpr std::chrono::microseconds kDoze{500};
constexpr int kDozes = 8;

}  // namespace

bool Script::through(const std::unique_ptr<Message>& message, int rank) {
  if (!message) return true;
  if (awaited_ == message.get() && arrived_) {
    awaited_ = nullptr;
    arrived_ = false;
    return true;
  }
  awaited_ = message.get();
  rank_ = rank;
  return false;
}

bool Lane::push(const std::shared_ptr<Script>& script, const std::function<void()>& begin, bool hurry) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || station_.unusable()) return false;
  if (!thread_.joinable()) {
    thread_ = core::start_thread("hookline-lane", [this, keep = station_.shared_from_this()] { run_thread(); });
  }
  begin();
  queue_.push_back(script);
  pushed_ = Clock::now();
  hurry_ = hurry_ || hurry;
  if (hurry || asleep_) wake_.notify_one();
  return true;
}

void Lane::flush() noexcept {
  std::unique_lock lock(mutex_);
  hurry_ = true;
  wake_.notify_one();
  while (!changed_.wait_for(lock, kInterruptPeriod, [&] { return queue_.empty(); })) {
    lock.unlock();
    try {
      check_interrupt();
    } catch (...) {  // who is in such a hurry does without
      return;
    }
    lock.lock();
  }
}

void Lane::hurry() {
  const std::lock_guard lock(mutex_);
  hurry_ = true;
  wake_.notify_one();
}

void Lane::drive_until(const std::function<bool()>& over, const std::function<Clock::time_point()>& until) {
  std::unique_lock lock(mutex_);
  while (!over()) {
    if (!driven_ && !queue_.empty()) {
      run(lock, over);
      continue;
    }
    const Clock::time_point deadline = until();
    const Clock::time_point now = Clock::now();
    changed_.wait_until(lock, std::clamp(deadline, now + Milliseconds(1), now + kInterruptPeriod));
    if (over()) return;
    lock.unlock();
    if (Clock::now() >= deadline) station_.waits().nudge_all();  // whoever drives finds that the time is up
    check_interrupt();
    lock.lock();
  }
}

// Drives the head of the queue, then the next, until `over`. What it throws comes from check_interrupt.
void Lane::run(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over) {
  driven_ = true;
  const auto release = [&] {
    if (stopping_ && !queue_.empty()) drain(lock);  // the thread that would see to them is gone
    driven_ = false;
    changed_.notify_all();
    if (!queue_.empty()) {
      hurry_ = true;
      wake_.notify_one();
    }
  };
  while (!queue_.empty() && !over()) {
    const std::shared_ptr<Script> head = queue_.front();
    lock.unlock();
    std::exception_ptr error;
    bool ended = false;
    try {
      ended = advance(*head, error);
    } catch (...) {
      lock.lock();
      release();
      throw;
    }
    if (ended) head->finish(error);
    lock.lock();
    if (!ended) {
      drain(lock);
      continue;
    }
    queue_.pop_front();
    changed_.notify_all();
  }
  release();
}

// True where the script is over, with its own error; false where the group is broken and all of the lane ends. What it
// throws comes from check_interrupt.
bool Lane::advance(Script& script, std::exception_ptr& error) {
  std::exception_ptr fatal;
  while (!fatal) {
    try {
      if (script.step()) return true;
    } catch (const Mismatch&) {
      error = std::current_exception();
      return true;
    } catch (const PeerLost&) {
      if (!script.counts()) return true;
      fatal = explain(script, std::current_exception());
      break;
    } catch (const std::bad_alloc&) {
      fatal = std::make_exception_ptr(ResourceError(script.what() + ": there is no memory for it"));
      break;
    } catch (...) {
      fatal = std::current_exception();
      break;
    }
    const auto outcome =
        station_.waits().wait_for(station_.engine(), *script.awaited_, script.rank_, [&] { return earliest(); }, fatal);
    if (outcome == Waits::Outcome::stopped) return false;
    if (outcome == Waits::Outcome::through) {
      script.arrived_ = true;
      fatal = nullptr;
      continue;
    }
    if (!script.counts()) return true;  // nobody minds
    fatal = outcome == Waits::Outcome::time_up ? script.time_up() : explain(script, fatal);
  }
  station_.fail(fatal);
  return false;
}

std::exception_ptr Lane::explain(Script& script, const std::exception_ptr& lost) {
  return station_.explain(lost, script.rank_, script.what(), [&](int rank) { return script.lacks(rank); });
}

// When the first of those that are queued must be over: they wait for the head.
Clock::time_point Lane::earliest() {
  const std::lock_guard lock(mutex_);
  Clock::time_point first = Clock::time_point::max();
  for (const auto& script : queue_) first = std::min(first, script->until());
  return first;
}

void Lane::drain(std::unique_lock<std::mutex>& lock) {
  const std::deque<std::shared_ptr<Script>> ended = std::exchange(queue_, {});
  lock.unlock();
  for (const auto& script : ended) script->finish(station_.why_unusable());
  lock.lock();
  changed_.notify_all();
}

void Lane::end_all() {
  std::unique_lock lock(mutex_);
  if (driven_) return;
  driven_ = true;
  drain(lock);
  driven_ = false;
  changed_.notify_all();
}

void Lane::run_thread() {
  std::unique_lock lock(mutex_);
  for (int looks = 0; !stopping_;) {
    if (driven_ || queue_.empty()) {
      if (queue_.empty()) hurry_ = false;
      if (++looks <= kDozes) {
        wake_.wait_for(lock, kDoze);
      } else {
        asleep_ = true;
        wake_.wait(lock, [&] { return stopping_ || (!driven_ && !queue_.empty()); });
        asleep_ = false;
        looks = 0;
      }
    } else if (!hurry_ && Clock::now() < pushed_ + kDoze) {
      looks = 0;
      wake_.wait_until(lock, pushed_ + kDoze);
    } else {
      looks = 0;
      run(lock, [] { return false; });
    }
  }
  // Somebody drove when all was ended, and has left the rest to this thread since.
  if (driven_ || queue_.empty()) return;
  driven_ = true;
  drain(lock);
  driven_ = false;
}

void Lane::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_.notify_all();
  }
  core::end_thread(thread_);
}

}  // namespace hookline::engine
