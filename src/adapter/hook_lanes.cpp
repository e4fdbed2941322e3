// Starts hooks in bucket order from a single queue, each when its lane is free.
#include "adapter/hook_lanes.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/note.hpp"
#include "core/stopwatch.hpp"
#include "group/abort_quietly.hpp"
#include "reducer/sparse_rows.hpp"

namespace hookline::adapter {
namespace {

/// A sparse gradient and its parameter.
struct Sparse {
  SparseGradient own;
  Tensor parameter;
};

}  // namespace

struct HookLanes::Entry {
  Entry(GradBucket b, Done d) : bucket(std::move(b)), done(std::move(d)) {}
  std::string place() const {
    return fmt::format("bucket {} in step {} (hook {})", bucket.index(), step, hook->name());
  }

  GradBucket bucket;
  std::optional<Sparse> sparse;
  Done done;
  HookPtr hook;
  int lane = 0;
  std::uint64_t step = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  Clock::time_point ready = Clock::now();
  Clock::time_point launched = ready;
  Clock::time_point ended = ready;
};

HookLanes::HookLanes(std::shared_ptr<ProcessGroup> group, HookPtr hook)
    : group_(std::move(group)), hook_(std::move(hook)), launcher_(group_ ? group_->capabilities().lanes : 1) {
  if (!group_ || !hook_) {
    throw InvalidArgument(std::string("BucketHook: ") + (group_ ? "hook" : "group") + " must not be null");
  }
}

void HookLanes::run(GradBucket bucket, Done done) { add(std::make_shared<Entry>(std::move(bucket), std::move(done))); }

void HookLanes::run_sparse(std::size_t index, std::size_t bucket_count, SparseGradient own, Tensor parameter,
                           SparseDone done) {
  // The bucket has no rows until the union of all ranks' rows is known.
  const SparseGradient none{Tensor::empty({0}, DType::i64), Tensor::empty({0}, parameter.dtype())};
  const auto entry = std::make_shared<Entry>(reducer::bucket_of_rows(index, bucket_count, none, parameter), nullptr);
  entry->sparse = Sparse{std::move(own), std::move(parameter)};
  // `raw` is safe: the entry outlives its callback.
  entry->done = [done = std::move(done), raw = entry.get()](const Tensor& reduced, const std::exception_ptr& error) {
    if (error) {
      done(SparseGradient(), error);
    } else {
      done({*raw->bucket.sparse_grad_indices(), reduced.reshape(raw->bucket.sizes()[0])}, nullptr);
    }
  };
  add(entry);
}

void HookLanes::add(const EntryPtr& entry) {
  if (const std::exception_ptr failed = failure()) {
    entry->done(Tensor(), failed);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const std::size_t index = entry->bucket.index();
    if (index == 0) {
      ++step_;
      step_entries_.clear();
    }
    last_seen_ = entry->bucket.is_last();
    entry->hook = hook_;
    entry->lane = launcher_.lane_of(*hook_, index);
    entry->step = step_;
    step_entries_.push_back(entry);
    ++pending_;
    waiting_.push_back(entry);
  }
  launch();
}

// Hook states count steps by the order in which hooks start, so a bucket never starts before an earlier one, whatever
// its lane.
void HookLanes::launch() {
  const auto take = [this]() -> std::optional<EntryPtr> {
    if (waiting_.empty() || launcher_.busy(waiting_.front()->lane)) return std::nullopt;
    EntryPtr entry = std::move(waiting_.front());
    waiting_.pop_front();
    launcher_.set_busy(entry->lane, true);
    entry->launched = Clock::now();
    return entry;
  };
  launcher_.launch(mutex_, take, [this](const EntryPtr& entry) { start(entry); });
}

// Counts a completed bucket. True for the last one of the step, which need not be the last one submitted.
bool HookLanes::ends_step() {
  const std::lock_guard lock(mutex_);
  return --pending_ == 0 && last_seen_ && !failure_;
}

std::exception_ptr HookLanes::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void HookLanes::start(const EntryPtr& entry) {
  if (const std::exception_ptr failed = failure()) {
    end(entry, HookResult(), failed);
    return;
  }
  const ContextScope scope(
      {.lane = entry->lane, .note = core::bucket_note(entry->step, entry->bucket.index()), .sent = entry->sent});
  try {
    if (entry->bucket.index() == 0) entry->hook->begin_step({});
    const Future<HookResult> future = entry->sparse ? run_rows(entry) : entry->hook->run_hook(entry->bucket);
    // The captures keep hook, bucket and group alive until the hook completes.
    future.on_done([self = shared_from_this(), entry, future] {
      const std::exception_ptr error = future.error();
      self->end(entry, error ? HookResult() : future.value(), error);
    });
  } catch (...) {
    end(entry, HookResult(), std::current_exception());
  }
}

Future<HookResult> HookLanes::run_rows(EntryPtr entry) {
  std::vector<SparseGradient> parts(1, entry->sparse->own);
  Future<SparseGradient> uniting = reducer::unite_rows(group_, std::move(parts), entry->sparse->parameter);
  const SparseGradient rows = co_await uniting;
  {
    const std::lock_guard lock(mutex_);  // for stats()
    const GradBucket& old = entry->bucket;
    entry->bucket = reducer::bucket_of_rows(old.index(), old.bucket_count(), rows, entry->sparse->parameter);
  }
  if (rows.indices.numel() == 0) co_return entry->bucket.buffer();
  HookResult result = co_await entry->hook->run_hook(entry->bucket);
  co_return result;
}

void HookLanes::end(const EntryPtr& entry, const HookResult& result, std::exception_ptr error) {
  Tensor reduced;
  const auto attempt = [&](const auto& what) {
    try {
      if (!error) what();
    } catch (...) {
      error = std::current_exception();
    }
    if (error) fail(error, *entry);
  };
  attempt([&] {
    reduced = entry->hook->parse_hook_result(result);
    hook::check_result([&] { return entry->place(); }, entry->bucket.buffer(), reduced);
  });
  if (ends_step()) attempt([&] { entry->hook->end_step({}); });
  {
    const std::lock_guard lock(mutex_);
    entry->ended = Clock::now();
    launcher_.set_busy(entry->lane, false);
  }
  std::exchange(entry->done, nullptr)(reduced, error);
  launch();
}

void HookLanes::fail(const std::exception_ptr& error, const Entry& entry) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
  }
  if (hook::comes_from_the_group(error)) return;
  const std::string cause = fmt::format("{} failed: {}", entry.place(), describe(error));
  group::abort_quietly(*group_, cause);
  entry.hook->give_up(cause);
}

void HookLanes::replace(HookPtr hook) {
  if (!hook) throw InvalidArgument("replace_hook: hook must not be null");
  const std::lock_guard lock(mutex_);
  if (pending_ > 0 || !last_seen_) {
    throw InvalidArgument(
        fmt::format("replace_hook: the hook {} cannot be replaced inside a step. Replace it before the forward pass or "
                    "after the backward pass.",
                    hook_->name()));
  }
  hook_ = std::move(hook);
}

HookPtr HookLanes::hook() const {
  const std::lock_guard lock(mutex_);
  return hook_;
}

StepStats HookLanes::stats() const {
  const std::lock_guard lock(mutex_);
  StepStats stats;
  stats.step = step_;
  stats.hook = hook_->name();
  if (step_entries_.empty()) return stats;
  const Clock::time_point begin = step_entries_.front()->ready;
  for (const EntryPtr& entry : step_entries_) {
    const std::uint64_t sent = entry->sent->load(std::memory_order_relaxed);
    stats.buckets.push_back({.index = entry->bucket.index(),
                             .parameters = entry->bucket.lengths().size(),
                             .bytes = entry->bucket.buffer().nbytes(),
                             .sent_bytes = sent,
                             .ready = core::seconds(entry->ready - begin),
                             .launched = core::seconds(entry->launched - begin),
                             .done = core::seconds(entry->ended - begin)});
    stats.sent_bytes += sent;
    stats.total = std::max(stats.total, core::seconds(entry->ended - begin));
    stats.backward = std::max(stats.backward, core::seconds(entry->ready - begin));
  }
  stats.exposed = std::max(0.0, stats.total - stats.backward);
  return stats;
}

}  // namespace hookline::adapter
