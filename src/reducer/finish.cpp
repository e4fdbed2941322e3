// ReducerImpl: the end of a step.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "core/stopwatch.hpp"
#include "group/abort_quietly.hpp"
#include "kernel/copy.hpp"
#include "reducer/reducer_impl.hpp"

namespace hookline::reducer {
namespace {

/// Extra time of a hook beyond the timeout of its operations.
constexpr Milliseconds kTimeoutSlack{300};
/// Time for running hooks to complete after one of them has failed.
constexpr Milliseconds kFailureGrace{1000};

}  // namespace

void ReducerImpl::finalize() {
  if (no_sync) return;
  open_step(true);
  const Clock::time_point backward_end = Clock::now();
  try {
    handle_unmarked();
    {
      const std::lock_guard lock(mutex_);
      launch_deferred_ = false;
    }
    queue_full_buckets();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      wait_for_bucket(i);
      write_back(buckets[i], i);
    }
    allreduce_unused();
    restore_unused();
    end_hook_step();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (!wait_for_launched()) {
      const std::string where = fmt::format("the hook {} was still running when step {} failed", hook->name(), step_);
      fail(std::make_exception_ptr(Timeout(hookline::describe(error))), where);
      scheduler_->abandon(this);
      scheduler_->launch();
    }
    step_open_.store(false, std::memory_order_release);
    throw_if_failed();  // the first error takes precedence
    reset_step();
    std::rethrow_exception(error);
  }
  write_stats(backward_end);
  if (recording_order_)
    rebuild_pending_ = !options.buckets && (!options.find_unused_parameters || options.static_graph);
  recording_order_ = false;
  learning_graph_ = false;
  close_step();
  reduced_ = true;
}

void ReducerImpl::discard_step() {
  if (!step_open_.load(std::memory_order_acquire)) return;
  throw_if_failed();
  {
    const std::lock_guard lock(mutex_);
    if (next_bucket_ > 0 || join_) {
      throw InvalidArgument(fmt::format(
          "Expected to have finished reduction in the prior iteration before starting a new one. The backward pass of "
          "step {} on rank {} of {} failed after {} of {} buckets were launched{}. Other ranks have received this "
          "rank's contribution, so the step cannot be repeated. Create a new reducer (DataParallel, DDP model) on all "
          "ranks.",
          step_, group->rank(), group->size(), next_bucket_, buckets.size(), join_ ? ", inside a join" : ""));
    }
  }
  reset_step();
}

void ReducerImpl::reset_step() {
  for (const GradSlot& slot : slots_) {
    if (slot.saved_grad) slot.view.copy_from(*slot.saved_grad);
  }
  {
    const std::lock_guard lock(mutex_);
    // Nothing was sent, so the next step of this rank has the same number as the current step of other ranks.
    if (next_bucket_ == 0 && !join_) --step_;
  }
  close_step();
}

// Handles parameters without a mark: an unused parameter contributes zeros or a stale gradient, a missing one is an
// error. The first step of a static graph records the number of marks of each parameter.
void ReducerImpl::handle_unmarked() {
  const auto full = [](const Bucket& b) { return b.pending.load(std::memory_order_acquire) == 0; };
  if (!learning_graph_ && std::all_of(buckets.begin(), buckets.end(), full)) return;
  std::vector<std::string_view> missing;
  std::vector<std::size_t> unused;
  for (const std::size_t p : trainable_) {
    ParamProgress& progress = param_progress_[p];
    const std::uint32_t marks = progress.marks.load(std::memory_order_acquire);
    if (learning_graph_) {
      progress.expected_marks = marks;
      if (marks > 0) count_ready(p);
      else unused.push_back(p);
    } else if (marks != progress.expected_marks) {
      if (marks == 0 && (options.find_unused_parameters || joined_)) unused.push_back(p);
      else missing.push_back(parameters[p].name);
    }
  }
  if (!missing.empty()) {
    throw InvalidArgument(fmt::format(
        "Expected to have finished reduction in the prior iteration before starting a new one. At the end of step {} "
        "on rank {} of {}, {} of {} parameters had no gradient: {}. Mark every parameter in every step, or set "
        "find_unused_parameters{}.",
        step_, group->rank(), group->size(), missing.size(), parameters.size(), join_names(missing),
        options.static_graph ? "; with static_graph every step must mark the same parameters as the first" : ""));
  }
  for (const std::size_t p : unused) {
    if (param_progress_[p].dense && !param_progress_[p].accumulated && !param_progress_[p].stale_grad) zero_unused(p);
    count_ready(p);
  }
}

// Fills the gradient with zeros. Saves an exposed view first, to restore it if no rank has a gradient.
void ReducerImpl::zero_unused(std::size_t parameter) {
  GradSlot& slot = slots_[parameter];
  if (slot.view_exposed && (options.find_unused_parameters || options.static_graph))
    slot.saved_grad = slot.view.clone();
  param_progress_[parameter].needs_reset = true;
  std::memset(slot.data, 0, slot.view.nbytes());
}

// The default is longer than the timeout of the hook's operations, whose more specific errors must come first.
Milliseconds ReducerImpl::hook_timeout() const {
  return options.timeout ? std::min(*options.timeout, kMaxTimeout)
                         : std::min(group->timeout(), kMaxTimeout) + kTimeoutSlack;
}

// The time limit for a queue without progress. The hook that blocks the queue may belong to another model, so a short
// timeout of this reducer does not apply.
Milliseconds ReducerImpl::stall_timeout() const {
  return std::max(hook_timeout(), std::min(group->timeout(), kMaxTimeout) + kTimeoutSlack);
}

void ReducerImpl::wait_for_bucket(std::size_t index) {
  Bucket& bucket = buckets[index];
  // Read outside the lock: group->timeout() may take the GIL, and the thread that holds the GIL may wait for the lock.
  const Milliseconds limit = hook_timeout();
  const Milliseconds stall_limit = stall_timeout();
  hook::StallTimer stall(*scheduler_, stall_limit);
  {
    std::unique_lock lock(mutex_);
    const auto done = [&] { return failure_ || bucket.done || bucket.work; };
    while (!done()) {
      // The timeout of a hook starts when it is launched. Until then it may wait for hooks of other models.
      const Clock::time_point begin = bucket.launched ? bucket.launched_at : Clock::now();
      const bool stalled = !bucket.launched && stall.expired();
      if (stalled || (bucket.launched && Clock::now() >= begin + limit)) {
        lock.unlock();
        const auto timeout_error = std::make_exception_ptr(Timeout(
            stalled ? fmt::format("no hook of any model on the group has started or completed within {} ms, so {} "
                                  "cannot start",
                                  stall_limit.count(), describe_bucket(index))
                    : fmt::format("the hook {} did not complete the Future of {} within {} ms", hook->name(),
                                  describe_bucket(index), limit.count())));
        fail(timeout_error, stalled ? "a hook did not start" : "a hook did not complete");
        group::abort_quietly(*group, hookline::describe(timeout_error));
        lock.lock();
        break;
      }
      done_cv_.wait_for(lock, std::min(kInterruptPeriod, time_left(begin + limit)), done);
      if (done()) break;
      lock.unlock();
      try {
        check_interrupt();
      } catch (...) {
        fail(std::current_exception(), describe_bucket(index));
      }
      lock.lock();
    }
    if (failure_) std::rethrow_exception(failure_);
  }
  if (!bucket.work) return;
  try {
    bucket.work->wait(options.timeout);
  } catch (...) {
    fail(std::current_exception(), describe_bucket(index));
    throw_if_failed();
  }
  bucket.done_at = bucket.work->time_finished();
}

// Called after a failure: waits until no hook can touch the tensors any more and no thread is about to launch one.
// Returns false if a hook does not complete.
bool ReducerImpl::wait_for_launched() {
  bool all_settled = true;
  const Clock::time_point deadline =
      deadline_after(failure() ? kFailureGrace : options.timeout.value_or(group->timeout()));
  for (Bucket& bucket : buckets) {
    if (bucket.pending.load(std::memory_order_acquire) > 0) break;  // buckets after it are not launched either
    std::unique_lock lock(mutex_);
    const auto settled = [&] {
      return bucket.done || bucket.work || (!bucket.launched && (failure_ || launch_deferred_));
    };
    all_settled = done_cv_.wait_until(lock, deadline, settled) && all_settled;
    const WorkPtr work = bucket.work;
    lock.unlock();
    try {
      if (work) work->wait(time_left(deadline));
    } catch (...) {  // the caller gets the first error
    }
  }
  return all_settled;
}

void ReducerImpl::write_back(Bucket& bucket, std::size_t index) {
  const Tensor expected = bucket.sparse ? bucket.grad_bucket->buffer() : bucket.buffer;
  const bool is_plain_allreduce = bucket.work != nullptr;
  // A sparse bucket without rows skips the hook.
  const bool is_empty = bucket.sparse && expected.numel() == 0;
  const Tensor result = is_plain_allreduce ? bucket.buffer
                        : is_empty         ? expected
                                           : hook->parse_hook_result(*bucket.result);
  hook::check_result([&] { return describe_bucket(index); }, expected, result);
  const double scale = hook->applies_scale() ? 1 : scale_;
  if (bucket.sparse) {
    GradSlot& slot = slots_[bucket.members[0]];
    Tensor values = result.contiguous();
    if (scale != 1) {
      if (values.bytes() != expected.bytes()) values = values.clone();  // the hook may own this memory
      values *= scale;
    }
    slot.reduced_sparse_grad =
        SparseGradient{*bucket.grad_bucket->sparse_grad_indices(), values.reshape(bucket.grad_bucket->sizes()[0])};
    return;
  }
  if (result.bytes() != bucket.buffer.bytes()) bucket.buffer.copy_from(result);
  if (scale != 1) bucket.buffer *= scale;
  if (!bucket.needs_writeback.load(std::memory_order_relaxed)) return;
  for (const std::size_t p : bucket.members) {
    // A stale gradient is written back later, once it is known that some rank has a new one.
    if (param_progress_[p].needs_reset && !param_progress_[p].stale_grad) copy_to_gradient(slots_[p], stores_);
  }
}

void ReducerImpl::copy_to_gradient(GradSlot& slot, kernel::StoreMode stores) {
  if (slot.writeback_ptr) kernel::copy(slot.writeback_ptr, slot.data, slot.view.nbytes(), stores);
  else if (slot.writeback_view) slot.writeback_view->copy_from(slot.view);
}

void ReducerImpl::allreduce_unused() {
  if (options.static_graph ? !learning_graph_ : !options.find_unused_parameters) return;
  const Tensor marks = Tensor::zeros({static_cast<std::int64_t>(slots_.size())}, DType::i32);
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    const std::uint32_t here = param_progress_[p].marks.load(std::memory_order_relaxed);
    marks.data<std::int32_t>()[p] = here == 0 && param_progress_[p].accumulated ? 1 : static_cast<std::int32_t>(here);
  }
  run_control_collective("finding unused parameters", [&] { group->allreduce(marks, {.op = ReduceOp::max})->wait(); });
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    const auto max_marks = static_cast<std::uint32_t>(marks.data<std::int32_t>()[p]);
    param_progress_[p].unused = parameters[p].has_gradient() && max_marks == 0;
    // A rank that shadowed the first step takes over the counts of the other ranks.
    if (learning_graph_ && joined_) param_progress_[p].expected_marks = max_marks;
  }
}

void ReducerImpl::restore_unused() {
  stats.unused.clear();
  if (!options.find_unused_parameters && !options.static_graph) return;
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    if (param_progress_[p].stale_grad && !param_progress_[p].unused) copy_to_gradient(slots_[p], stores_);
    if (!param_progress_[p].unused) continue;
    stats.unused.push_back(parameters[p].name);
    if (slots_[p].saved_grad) slots_[p].view.copy_from(*slots_[p].saved_grad);
  }
}

// An error here breaks the reducer, because other ranks may have succeeded.
void ReducerImpl::end_hook_step() {
  try {
    hook->end_step({.unused_known = true, .unused = stats.unused});
  } catch (...) {
    fail(std::current_exception(), fmt::format("the end of step {} (hook {})", step_, hook->name()));
    throw_if_failed();
  }
}

void ReducerImpl::close_step() {
  for (std::size_t p = 0; p < param_progress_.size(); ++p) {
    ParamProgress& progress = param_progress_[p];
    progress.marks.store(0, std::memory_order_relaxed);
    progress.copied.store(0, std::memory_order_relaxed);
    progress.accumulated = progress.stale_grad = false;
    if (!std::exchange(progress.needs_reset, false)) continue;
    GradSlot& slot = slots_[p];
    slot.writeback_ptr = nullptr;
    slot.writeback_owner.reset();
    slot.writeback_view.reset();
    slot.saved_grad.reset();
    slot.sparse_grads.clear();
  }
  const std::lock_guard lock(mutex_);
  for (Bucket& bucket : buckets) {
    bucket.pending.store(bucket.members.size(), std::memory_order_relaxed);
    bucket.needs_writeback.store(false, std::memory_order_relaxed);
    bucket.launched = bucket.done = false;
    bucket.work.reset();
    bucket.result.reset();
    bucket.grad_bucket.reset();
  }
  next_bucket_ = 0;
  step_open_.store(false, std::memory_order_release);
}

void ReducerImpl::write_stats(Clock::time_point backward_end) {
  const Clock::time_point now = Clock::now();
  stats.step = step_;
  stats.hook = hook->name();
  stats.rebuilt = std::exchange(rebuilt_, false);
  stats.buckets.clear();
  stats.bytes_sent = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& b = buckets[i];
    const std::uint64_t sent = b.bytes_sent ? b.bytes_sent->load(std::memory_order_relaxed) : 0;
    stats.bytes_sent += sent;
    stats.buckets.push_back({.index = i,
                             .parameters = b.members.size(),
                             .bytes = b.sparse ? b.grad_bucket->buffer().nbytes() : b.buffer.nbytes(),
                             .bytes_sent = sent,
                             .ready = core::seconds(b.ready_at - step_begin_),
                             .launched = core::seconds(b.launched_at - step_begin_),
                             .done = core::seconds(b.done_at - step_begin_)});
  }
  stats.backward = core::seconds(backward_end - step_begin_);
  stats.total = core::seconds(now - step_begin_);
  stats.exposed_comm = stats.total - stats.backward;
}

}  // namespace hookline::reducer
