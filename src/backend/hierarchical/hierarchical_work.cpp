// Waits for operations of a hierarchical group.
#include "backend/hierarchical/hierarchical_work.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "backend/hierarchical/hierarchical_context.hpp"

namespace hookline::hierarchical {
namespace {

// At the deadline the sub-backend names the missing ranks. If it has not done so after this grace, wait() times out.
constexpr Milliseconds kSubBackendGrace{2000};

}  // namespace

HierarchicalWork::HierarchicalWork(std::shared_ptr<HierarchicalContext> context, std::shared_ptr<Executor> executor,
                                   Operation&& operation, Milliseconds timeout)
    : context_(std::move(context)),
      operation_(std::move(operation)),
      deadline_(deadline_after(timeout)),
      result_promise_(std::move(executor)) {}

void HierarchicalWork::wait(std::optional<Milliseconds> timeout) {
  if (!is_done()) context_->refuse_in_forked_child("wait");
  const Clock::time_point requested_deadline = timeout ? deadline_after(*timeout) : Clock::time_point::max();
  const Clock::time_point final_deadline = std::min(requested_deadline, deadline_ + kSubBackendGrace);
  if (!wait_until_done(final_deadline)) {
    context_->fail(std::make_exception_ptr(
        Timeout(fmt::format("{} (number {}) on rank {} of the hierarchical group did not complete within {} ms",
                            name(operation_.type), operation_.sequence_number, context_->sub_backends().rank,
                            std::chrono::duration_cast<Milliseconds>(final_deadline - started_).count()))));
    // Returns soon, because fail() aborted the sub-backends. No thread uses the tensors afterwards.
    wait_until_done(Clock::time_point::max());
  }
  if (error_) std::rethrow_exception(error_);
}

bool HierarchicalWork::wait_until_done(Clock::time_point time_limit) {
  std::unique_lock lock(mutex_);
  while (!done_) {
    const Clock::time_point now = Clock::now();
    if (now >= time_limit) return false;
    if (done_changed_.wait_until(lock, std::min(time_limit, now + kInterruptPeriod), [&] { return done_; })) break;
    lock.unlock();
    check_interrupt();
    lock.lock();
  }
  return true;
}

Future<std::vector<Tensor>> HierarchicalWork::get_future() {
  context_->refuse_in_forked_child("get_future");  // even if done: the worker thread exists only in the parent
  return result_promise_.get_future();
}

void HierarchicalWork::on_complete(Task callback, Urgency) {
  completion_promise_.get_future().on_done(std::move(callback));
}

bool HierarchicalWork::is_completed() {
  if (is_done()) return true;
  context_->refuse_in_forked_child("is_completed");
  return false;
}

bool HierarchicalWork::is_done() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

std::exception_ptr HierarchicalWork::exception() {
  const std::lock_guard lock(mutex_);
  return error_;
}

Clock::time_point HierarchicalWork::time_finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

void HierarchicalWork::complete(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = error;
    finished_ = Clock::now();
    done_ = true;
  }
  done_changed_.notify_all();
  completion_promise_.set_value();
  if (error) {
    result_promise_.set_error(std::move(error));
  } else {
    result_promise_.set_value(operation_.outputs);
  }
}

}  // namespace hookline::hierarchical
