// Drives the tasks of a lane, from waiting threads or from the lane's thread.
#include "backend/p2p/lane.hpp"

#include <algorithm>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/p2p/p2p_context.hpp"
#include "core/thread.hpp"

namespace hookline::p2p {
namespace {

// The time for which the lane's thread leaves a new task to a waiting caller. While tasks keep coming, the thread polls
// at this interval instead of blocking, because a poll costs less than a wake-up.
constexpr std::chrono::microseconds kPollInterval{500};
constexpr int kIdlePolls = 8;

}  // namespace

bool LaneTask::test_request(const std::unique_ptr<Request>& request, int rank) {
  if (!request) return true;
  if (awaited_request_ == request.get() && completed_) {
    awaited_request_ = nullptr;
    completed_ = false;
    return true;
  }
  awaited_request_ = request.get();
  peer_ = rank;
  return false;
}

bool Lane::push(const std::shared_ptr<LaneTask>& task, const std::function<void()>& post, bool wake_thread) {
  const std::lock_guard lock(mutex_);
  if (stopping_ || context_.unusable()) return false;
  if (!thread_.joinable()) {
    thread_ = core::start_thread("hookline-lane", [this, keep = context_.shared_from_this()] { run_thread(); });
  }
  post();
  queue_.push_back(task);
  last_push_ = Clock::now();
  wake_requested_ = wake_requested_ || wake_thread;
  if (wake_thread || thread_blocked_) wake_thread_.notify_one();
  return true;
}

void Lane::flush() noexcept {
  std::unique_lock lock(mutex_);
  wake_requested_ = true;
  wake_thread_.notify_one();
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

void Lane::wake() {
  const std::lock_guard lock(mutex_);
  wake_requested_ = true;
  wake_thread_.notify_one();
}

void Lane::drive_until(const std::function<bool()>& done, const std::function<Clock::time_point()>& next_deadline) {
  std::unique_lock lock(mutex_);
  while (!done()) {
    if (!has_driver_ && !queue_.empty()) {
      run(lock, done);
      continue;
    }
    const Clock::time_point deadline = next_deadline();
    const Clock::time_point now = Clock::now();
    changed_.wait_until(lock, std::clamp(deadline, now + Milliseconds(1), now + kInterruptPeriod));
    if (done()) return;
    lock.unlock();
    if (Clock::now() >= deadline) context_.watchdog().interrupt_all();  // the driver then sees the timeout
    check_interrupt();
    lock.lock();
  }
}

// Drives the queue from its head until `done` returns true. Throws only what check_interrupt() throws.
void Lane::run(std::unique_lock<std::mutex>& lock, const std::function<bool()>& done) {
  has_driver_ = true;
  const auto release_driver = [&] {
    if (stopping_ && !queue_.empty()) fail_queue(lock);  // the lane's thread has ended
    has_driver_ = false;
    changed_.notify_all();
    if (!queue_.empty()) {
      wake_requested_ = true;
      wake_thread_.notify_one();
    }
  };
  while (!queue_.empty() && !done()) {
    const std::shared_ptr<LaneTask> head = queue_.front();
    lock.unlock();
    std::exception_ptr error;
    bool completed = false;
    try {
      completed = advance(*head, error);
    } catch (...) {
      lock.lock();
      release_driver();
      throw;
    }
    if (completed) head->finish(error);
    lock.lock();
    if (!completed) {
      fail_queue(lock);
      continue;
    }
    queue_.pop_front();
    changed_.notify_all();
  }
  release_driver();
}

// Returns true if the task has ended, with its own error; false if the group has failed and the whole lane ends. Throws
// only what check_interrupt() throws.
bool Lane::advance(LaneTask& task, std::exception_ptr& error) {
  std::exception_ptr fatal;
  while (!fatal) {
    try {
      if (task.step()) return true;
    } catch (const Mismatch&) {
      error = std::current_exception();
      return true;
    } catch (const PeerLost&) {
      if (!task.fails_group()) return true;
      fatal = diagnose(task, std::current_exception());
      break;
    } catch (const std::bad_alloc&) {
      fatal = std::make_exception_ptr(ResourceError(context_.error_prefix(task.description()) + ": out of memory"));
      break;
    } catch (...) {
      fatal = std::current_exception();
      break;
    }
    const auto outcome = context_.watchdog().wait_for(
        context_.transport(), *task.awaited_request_, task.peer_, [&] { return earliest_deadline(); }, fatal);
    if (outcome == Watchdog::Outcome::cancelled) return false;
    if (outcome == Watchdog::Outcome::completed) {
      task.completed_ = true;
      fatal = nullptr;
      continue;
    }
    if (!task.fails_group()) return true;
    fatal = outcome == Watchdog::Outcome::timed_out ? task.timeout_error() : diagnose(task, fatal);
  }
  context_.fail(fatal);
  return false;
}

std::exception_ptr Lane::diagnose(LaneTask& task, const std::exception_ptr& disconnect) {
  return context_.diagnose_disconnect(disconnect, task.peer_, task.description(),
                                      [&](int rank) { return task.is_missing(rank); });
}

// Returns the earliest deadline of all queued tasks, since they all wait for the head.
Clock::time_point Lane::earliest_deadline() {
  const std::lock_guard lock(mutex_);
  Clock::time_point earliest = Clock::time_point::max();
  for (const auto& task : queue_) earliest = std::min(earliest, task->task_deadline());
  return earliest;
}

void Lane::fail_queue(std::unique_lock<std::mutex>& lock) {
  const std::deque<std::shared_ptr<LaneTask>> failed = std::exchange(queue_, {});
  lock.unlock();
  for (const auto& task : failed) task->finish(context_.unusable_error());
  lock.lock();
  changed_.notify_all();
}

void Lane::fail_pending() {
  std::unique_lock lock(mutex_);
  if (has_driver_) return;
  has_driver_ = true;
  fail_queue(lock);
  has_driver_ = false;
  changed_.notify_all();
}

void Lane::run_thread() {
  std::unique_lock lock(mutex_);
  for (int idle_polls = 0; !stopping_;) {
    if (has_driver_ || queue_.empty()) {
      if (queue_.empty()) wake_requested_ = false;
      if (++idle_polls <= kIdlePolls) {
        wake_thread_.wait_for(lock, kPollInterval);
      } else {
        thread_blocked_ = true;
        wake_thread_.wait(lock, [&] { return stopping_ || (!has_driver_ && !queue_.empty()); });
        thread_blocked_ = false;
        idle_polls = 0;
      }
    } else if (!wake_requested_ && Clock::now() < last_push_ + kPollInterval) {
      idle_polls = 0;
      wake_thread_.wait_until(lock, last_push_ + kPollInterval);
    } else {
      idle_polls = 0;
      run(lock, [] { return false; });
    }
  }
  // A driver was active when the lane was failed, and has left the remaining tasks to this thread.
  if (has_driver_ || queue_.empty()) return;
  has_driver_ = true;
  fail_queue(lock);
  has_driver_ = false;
}

void Lane::stop() noexcept {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    wake_thread_.notify_all();
  }
  core::join_or_detach(thread_);
}

}  // namespace hookline::p2p
