// The end of a step: waiting for the hooks, and handing the means back.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "core/stopwatch.hpp"
#include "group/abort_quietly.hpp"
#include "kernel/copy.hpp"
#include "reducer/core.hpp"

namespace hookline::reducer {
namespace {

/// What a hook gets beyond the time of its operations.
constexpr Milliseconds kSlack{300};
/// How long hooks under way may take to end after one of them has failed.
constexpr Milliseconds kGrace{1000};

}  // namespace

void Core::finalize() {
  if (no_sync) return;
  open_step(true);
  const Clock::time_point backward_end = Clock::now();
  try {
    take_care_of_unmarked();
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
    }
    launch();
    for (std::size_t i = 0; i < buckets.size(); ++i) {
      wait_for(i);
      write_back(buckets[i], i);
    }
    agree_on_unused();
    put_back_unused();
    end_hooks();
  } catch (...) {
    const std::exception_ptr error = std::current_exception();
    if (!wait_for_launched()) {
      const std::string where =
          fmt::format("the hook {} was still under way when step {} was given up", hook->name(), step_);
      fail(std::make_exception_ptr(Timeout(hookline::describe(error))), where);
    }
    open_.store(false, std::memory_order_release);
    throw_if_failed();  // what came first counts
    give_up_step();
    std::rethrow_exception(error);
  }
  write_stats(backward_end);
  if (recording_) rebuild_due_ = !options.buckets && (!options.find_unused_parameters || options.static_graph);
  recording_ = false;
  learning_graph_ = false;
  close_step();
}

void Core::drop_step() {
  if (!open_.load(std::memory_order_acquire)) return;
  throw_if_failed();
  {
    const std::lock_guard lock(mutex_);
    if (next_ > 0 || join_) {
      throw InvalidArgument(fmt::format(
          "Expected to have finished reduction in the prior iteration before starting a new one. The backward pass of "
          "step {} on rank {} came to no end: it failed when {} of {} buckets were under way{}. Other ranks have their "
          "part of it, so it cannot be done again: make the model anew on all ranks",
          step_, group->rank(), next_, buckets.size(), join_ ? ", inside a join" : ""));
    }
  }
  give_up_step();
}

void Core::give_up_step() {
  for (const Slot& slot : slots_) {
    if (slot.saved) slot.view.copy_from(*slot.saved);
  }
  {
    const std::lock_guard lock(mutex_);
    // The other ranks may have taken it: this one's next step is their counterpart.
    if (next_ == 0 && !join_) --step_;
  }
  close_step();
}

// Parameters that nobody marked: unused, known to be so, or forgotten.
void Core::take_care_of_unmarked() {
  const auto full = [](const Bucket& b) { return b.missing.load(std::memory_order_acquire) == 0; };
  if (!learning_graph_ && std::all_of(buckets.begin(), buckets.end(), full)) return;
  std::vector<std::string_view> forgotten;
  std::vector<std::size_t> unused;
  for (const std::size_t p : reduced_) {
    Mark& mark = marks_[p];
    const std::uint32_t marks = mark.marks.load(std::memory_order_acquire);
    if (learning_graph_) {
      mark.expected = marks;
      if (marks > 0) count_ready(p);
      else unused.push_back(p);
    } else if (marks != mark.expected) {
      if (marks == 0 && (options.find_unused_parameters || shadowing_)) unused.push_back(p);
      else forgotten.push_back(parameters[p].name);
    }
  }
  if (!forgotten.empty()) {
    throw InvalidArgument(fmt::format(
        "Expected to have finished reduction in the prior iteration before starting a new one. At the end of step {} "
        "on rank {}, {} of {} parameters had no gradient: {}. Mark every parameter in every step, or set "
        "find_unused_parameters{}",
        step_, group->rank(), forgotten.size(), parameters.size(), listed(forgotten),
        options.static_graph ? "; with static_graph every step must mark what the first one did" : ""));
  }
  for (const std::size_t p : unused) {
    if (marks_[p].dense && !marks_[p].accumulated && !marks_[p].older) set_aside(p);
    count_ready(p);
  }
}

// Zeros as this rank's part. Where somebody may look at the view, what it held comes back if no rank has a gradient.
void Core::set_aside(std::size_t parameter) {
  Slot& slot = slots_[parameter];
  if (slot.shown && (options.find_unused_parameters || options.static_graph)) slot.saved = slot.view.clone();
  marks_[parameter].keeps = true;
  std::memset(slot.memory, 0, slot.view.nbytes());
}

void Core::wait_for(std::size_t index) {
  Bucket& bucket = buckets[index];
  // Operations have the same time, and their errors say more: they come first. A group may ask Python for it, where
  // another thread may be waiting for the lock.
  const Milliseconds limit = options.timeout ? std::min(*options.timeout, kLongestTimeout)
                                             : std::min(group->timeout(), kLongestTimeout) + kSlack;
  {
    std::unique_lock lock(mutex_);
    const auto over = [&] { return failure_ || bucket.done || bucket.work; };
    while (!over()) {
      // A hook that waits for its lane has the time of those before it, too.
      const Clock::time_point since = bucket.launched ? bucket.launched_at : Clock::now();
      if (bucket.launched && Clock::now() >= since + limit) {
        lock.unlock();
        const auto late =
            std::make_exception_ptr(Timeout(fmt::format("the hook {} did not complete the Future of {} within {} ms",
                                                        hook->name(), describe(index), limit.count())));
        fail(late, "a hook came to no end");
        group::abort_quietly(*group, hookline::describe(late));
        lock.lock();
        break;
      }
      done_.wait_for(lock, std::min(kInterruptPeriod, time_left(since + limit)), over);
      if (over()) break;
      lock.unlock();
      try {
        check_interrupt();
      } catch (...) {
        fail(std::current_exception(), describe(index));
      }
      lock.lock();
    }
    if (failure_) std::rethrow_exception(failure_);
  }
  if (!bucket.work) return;
  try {
    bucket.work->wait(options.timeout);
  } catch (...) {
    fail(std::current_exception(), describe(index));
    throw_if_failed();
  }
  bucket.done_at = bucket.work->time_finished();
}

// After a failure no tensor is handed back while one of the hooks may still touch it, and none is left that a thread is
// about to launch. False where one does not end.
bool Core::wait_for_launched() {
  bool all = true;
  const Clock::time_point deadline = deadline_after(failure() ? kGrace : options.timeout.value_or(group->timeout()));
  for (Bucket& bucket : buckets) {
    if (bucket.missing.load(std::memory_order_acquire) > 0) break;  // nor is any behind it launched
    std::unique_lock lock(mutex_);
    const auto settled = [&] { return bucket.done || bucket.work || (!bucket.launched && (failure_ || held_)); };
    all = done_.wait_until(lock, deadline, settled) && all;
    const WorkPtr work = bucket.work;
    lock.unlock();
    try {
      if (work) work->wait(time_left(deadline));
    } catch (...) {  // the first cause is what the caller gets
    }
  }
  return all;
}

void Core::write_back(Bucket& bucket, std::size_t index) {
  const Tensor expected = bucket.sparse ? bucket.view->buffer() : bucket.memory;
  const bool plain = bucket.work != nullptr;
  // A sparse bucket without any rows never came to the hook.
  const bool none = bucket.sparse && expected.numel() == 0;
  const Tensor result = plain ? bucket.memory : none ? expected : hook->parse_hook_result(bucket.result);
  hook::check_result([&] { return describe(index); }, expected, result);
  const double scale = hook->scales() ? 1 : scale_;
  if (bucket.sparse) {
    Slot& slot = slots_[bucket.members[0]];
    Tensor values = result.contiguous();
    if (scale != 1) {
      if (values.bytes() != expected.bytes()) values = values.clone();  // it may be the hook's own
      values *= scale;
    }
    slot.reduced = SparseGradient{*bucket.view->sparse_grad_indices(), values.reshape(bucket.view->sizes()[0])};
    return;
  }
  if (result.bytes() != bucket.memory.bytes()) bucket.memory.copy_from(result);
  if (scale != 1) bucket.memory *= scale;
  if (!bucket.gives_back.load(std::memory_order_relaxed)) return;
  for (const std::size_t p : bucket.members) {
    // An older gradient stays as it is where no rank has a new one, which is not known yet.
    if (marks_[p].keeps && !marks_[p].older) give_back(slots_[p], stores_);
  }
}

void Core::give_back(Slot& slot, kernel::Stores stores) {
  if (slot.given) kernel::copy(slot.given, slot.memory, slot.view.nbytes(), stores);
  else if (slot.given_strided) slot.given_strided->copy_from(slot.view);
}

void Core::agree_on_unused() {
  if (options.static_graph ? !learning_graph_ : !options.find_unused_parameters) return;
  const Tensor marks = Tensor::zeros({static_cast<std::int64_t>(slots_.size())}, DType::i32);
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    const std::uint32_t here = marks_[p].marks.load(std::memory_order_relaxed);
    marks.data<std::int32_t>()[p] = here == 0 && marks_[p].accumulated ? 1 : static_cast<std::int32_t>(here);
  }
  agree("agreeing on unused parameters", [&] { group->allreduce(marks, {.op = ReduceOp::max})->wait(); });
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    const auto most = static_cast<std::uint32_t>(marks.data<std::int32_t>()[p]);
    marks_[p].unused = parameters[p].has_gradient() && most == 0;
    // A rank that only shadowed the first step has no marks to learn from.
    if (learning_graph_ && shadowing_) marks_[p].expected = most;
  }
}

void Core::put_back_unused() {
  stats.unused.clear();
  if (!options.find_unused_parameters && !options.static_graph) return;
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    if (marks_[p].older && !marks_[p].unused) give_back(slots_[p], stores_);
    if (!marks_[p].unused) continue;
    stats.unused.push_back(parameters[p].name);
    if (slots_[p].saved) slots_[p].view.copy_from(*slots_[p].saved);
  }
}

// A hook that fails here fails the reducer: other ranks may have done what this one has not.
void Core::end_hooks() {
  try {
    hook->end_step({.unused_known = true, .unused = stats.unused});
  } catch (...) {
    fail(std::current_exception(), fmt::format("the end of step {} (hook {})", step_, hook->name()));
    throw_if_failed();
  }
}

void Core::close_step() {
  for (std::size_t p = 0; p < marks_.size(); ++p) {
    Mark& mark = marks_[p];
    mark.marks.store(0, std::memory_order_relaxed);
    mark.taken.store(0, std::memory_order_relaxed);
    mark.accumulated = mark.older = false;
    if (!std::exchange(mark.keeps, false)) continue;
    Slot& slot = slots_[p];
    slot.given = nullptr;
    slot.given_owner.reset();
    slot.given_strided.reset();
    slot.saved.reset();
    slot.sparse.clear();
  }
  const std::lock_guard lock(mutex_);
  for (Bucket& bucket : buckets) {
    bucket.missing.store(bucket.members.size(), std::memory_order_relaxed);
    bucket.gives_back.store(false, std::memory_order_relaxed);
    bucket.launched = bucket.done = false;
    bucket.work.reset();
    bucket.result.reset();
    bucket.view.reset();
  }
  next_ = 0;
  open_.store(false, std::memory_order_release);
}

void Core::write_stats(Clock::time_point backward_end) {
  const Clock::time_point now = Clock::now();
  stats.step = step_;
  stats.hook = hook->name();
  stats.rebuilt = std::exchange(rebuilt_, false);
  stats.buckets.clear();
  stats.sent_bytes = 0;
  for (std::size_t i = 0; i < buckets.size(); ++i) {
    const Bucket& b = buckets[i];
    const std::uint64_t sent = b.sent ? b.sent->load(std::memory_order_relaxed) : 0;
    stats.sent_bytes += sent;
    stats.buckets.push_back({.index = i,
                             .parameters = b.members.size(),
                             .bytes = b.sparse ? b.view->buffer().nbytes() : b.memory.nbytes(),
                             .sent_bytes = sent,
                             .ready = core::seconds(b.ready_at - begun_),
                             .launched = core::seconds(b.launched_at - begun_),
                             .done = core::seconds(b.done_at - begun_)});
  }
  stats.backward = core::seconds(backward_end - begun_);
  stats.total = core::seconds(now - begun_);
  stats.exposed = stats.total - stats.backward;
}

}  // namespace hookline::reducer
