// Waits for operations of a hierarchical group.
#include "backend/layered/operation.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/layered/layers.hpp"

namespace hookline::layered {
namespace {

// At the deadline the sub-backend names the missing ranks. If it has not done so after this grace, wait() times out.
constexpr Milliseconds kBeyondParts{2000};

}  // namespace

Operation::Operation(std::shared_ptr<Layers> layers, std::shared_ptr<Executor> executor, Collective&& collective,
                     Milliseconds timeout)
    : layers_(std::move(layers)),
      collective_(std::move(collective)),
      deadline_(deadline_after(timeout)),
      outcome_(std::move(executor)) {}

void Operation::wait(std::optional<Milliseconds> timeout) {
  if (!over()) layers_->refuse_in_forked_child("wait");
  const Clock::time_point asked = timeout ? deadline_after(*timeout) : Clock::time_point::max();
  const Clock::time_point last = std::min(asked, deadline_ + kBeyondParts);
  if (!over_by(last)) {
    layers_->fail(std::make_exception_ptr(
        Timeout(fmt::format("{} (number {}) on rank {} of the hierarchical group did not complete within {} ms",
                            name(collective_.type), collective_.sequence_number, layers_->levels().rank,
                            std::chrono::duration_cast<Milliseconds>(last - started_).count()))));
    over_by(Clock::time_point::max());  // soon, since the sub-backends are aborted; no thread uses the tensors then
  }
  if (error_) std::rethrow_exception(error_);
}

bool Operation::over_by(Clock::time_point time) {
  std::unique_lock lock(mutex_);
  while (!over_) {
    const Clock::time_point now = Clock::now();
    if (now >= time) return false;
    if (wake_.wait_until(lock, std::min(time, now + kInterruptPeriod), [&] { return over_; })) break;
    lock.unlock();
    check_interrupt();
    lock.lock();
  }
  return true;
}

Future<std::vector<Tensor>> Operation::get_future() {
  layers_->refuse_in_forked_child("get_future");  // even if done: the worker thread exists only in the parent
  return outcome_.get_future();
}

void Operation::when_over(Task task, bool) { end_.get_future().on_done(std::move(task)); }

bool Operation::is_completed() {
  if (over()) return true;
  layers_->refuse_in_forked_child("is_completed");
  return false;
}

bool Operation::over() const {
  const std::lock_guard lock(mutex_);
  return over_;
}

std::exception_ptr Operation::exception() {
  const std::lock_guard lock(mutex_);
  return error_;
}

Clock::time_point Operation::time_finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void Operation::complete(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
    finished_ = Clock::now();
    over_ = true;
  }
  wake_.notify_all();
  end_.set_value();
  if (error) {
    outcome_.set_error(std::move(error));
  } else {
    outcome_.set_value(collective_.outputs);
  }
}

}  // namespace hookline::layered
