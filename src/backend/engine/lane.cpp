// Drives the tasks of a lane, from waiting threads or from the lane's thread.
#include "backend/engine/lane.hpp"

#include <algorithm>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/engine/station.hpp"
#include "core/thread.hpp"

namespace hookline::engine {
namespace {

// How long the lane's thread leaves a new task to a waiting caller before it drives the task itself. While tasks keep
// coming, the thread polls at this interval instead of blocking, because a wake-up costs more.
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
    } catch (...) {  // interrupted: skip the rest
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
    if (Clock::now() >= deadline) station_.waits().nudge_all();  // the driver then sees the timeout
    check_interrupt();
    lock.lock();
  }
}

// Drives the queue from its head until `over` returns true. Throws only what check_interrupt() throws.
void Lane::run(std::unique_lock<std::mutex>& lock, const std::function<bool()>& over) {
  driven_ = true;
  const auto release = [&] {
    if (stopping_ && !queue_.empty()) drain(lock);  // the lane's thread has ended
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

// Returns true if the task has ended, with its own error; false if the group has failed and the whole lane ends. Throws
// only what check_interrupt() throws.
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
      fatal = std::make_exception_ptr(ResourceError(station_.context(script.what()) + ": out of memory"));
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
    if (!script.counts()) return true;
    fatal = outcome == Waits::Outcome::time_up ? script.time_up() : explain(script, fatal);
  }
  station_.fail(fatal);
  return false;
}

std::exception_ptr Lane::explain(Script& script, const std::exception_ptr& lost) {
  return station_.explain(lost, script.rank_, script.what(), [&](int rank) { return script.lacks(rank); });
}

// Returns the earliest deadline of all queued tasks, since they all wait for the head.
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
  // A driver was active when the lane was failed, and has left the remaining tasks to this thread.
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
