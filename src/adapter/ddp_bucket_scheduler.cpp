// Queues buckets in the scheduler of their group, and completes them.
#include "adapter/ddp_bucket_scheduler.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/op_tag.hpp"
#include "core/stopwatch.hpp"
#include "group/abort_quietly.hpp"
#include "reducer/sparse_rows.hpp"

namespace hookline::adapter {
namespace {

/// A sparse gradient and its parameter.
struct SparseBucket {
  SparseGradient gradient;
  Tensor parameter;
};

}  // namespace

struct DdpBucketScheduler::PendingBucket {
  PendingBucket(GradBucket b, Callback d) : bucket(std::move(b)), done(std::move(d)) {}
  std::string describe() const {
    return fmt::format("bucket {} in step {} (hook {})", bucket.index(), step, hook->name());
  }

  GradBucket bucket;
  std::optional<SparseBucket> sparse;
  Callback done;
  HookPtr hook;
  int lane = 0;
  std::uint64_t step = 0;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent = std::make_shared<std::atomic<std::uint64_t>>(0);
  Clock::time_point ready = Clock::now();
  Clock::time_point launched = ready;
  Clock::time_point ended = ready;
};

DdpBucketScheduler::DdpBucketScheduler(std::shared_ptr<ProcessGroup> group, HookPtr hook)
    : group_(std::move(group)),
      lanes_(group_ ? hook::lane_count(*group_) : 1),
      scheduler_(group_ ? hook::BucketScheduler::of(*group_) : nullptr),
      hook_(std::move(hook)) {
  if (!group_ || !hook_) {
    throw InvalidArgument(std::string("BucketHook: ") + (group_ ? "hook" : "group") + " must not be null");
  }
}

void DdpBucketScheduler::run(GradBucket bucket, Callback done) {
  enqueue(std::make_shared<PendingBucket>(std::move(bucket), std::move(done)));
}

void DdpBucketScheduler::run_sparse(std::size_t index, std::size_t bucket_count, SparseGradient own, Tensor parameter,
                                    SparseCallback done) {
  // The bucket has no rows until the union of all ranks' rows is known.
  const SparseGradient none{Tensor::empty({0}, DType::i64), Tensor::empty({0}, parameter.dtype())};
  const auto entry =
      std::make_shared<PendingBucket>(reducer::sparse_bucket(index, bucket_count, none, parameter), nullptr);
  entry->sparse = SparseBucket{std::move(own), std::move(parameter)};
  // `raw` is safe: the entry outlives its callback.
  entry->done = [done = std::move(done), raw = entry.get()](const Tensor& reduced, const std::exception_ptr& error) {
    if (error) {
      done(SparseGradient(), error);
    } else {
      done({*raw->bucket.sparse_grad_indices(), reduced.reshape(raw->bucket.sizes()[0])}, nullptr);
    }
  };
  enqueue(entry);
}

void DdpBucketScheduler::enqueue(const PendingBucketPtr& entry) {
  if (const std::exception_ptr failed = failure()) {
    entry->done(Tensor(), failed);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    const std::size_t index = entry->bucket.index();
    if (index == 0) {
      ++step_;
      step_buckets_.clear();
    }
    last_bucket_seen_ = entry->bucket.is_last();
    entry->hook = hook_;
    entry->lane = hook::lane_of(lanes_, *hook_, index);
    entry->step = step_;
    step_buckets_.push_back(entry);
    ++in_flight_;
    scheduler_->enqueue(
        {.owner = this, .lane = entry->lane, .exclusive = true, .start = [self = shared_from_this(), entry] {
           self->start(entry);
         }});
  }
  scheduler_->launch();
}

// Counts a completed bucket. True for the last one of the step, which need not be the last one submitted.
bool DdpBucketScheduler::finish_one() {
  const std::lock_guard lock(mutex_);
  return --in_flight_ == 0 && last_bucket_seen_ && !failure_;
}

std::exception_ptr DdpBucketScheduler::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void DdpBucketScheduler::start(const PendingBucketPtr& entry) {
  std::exception_ptr failed;
  {
    const std::lock_guard lock(mutex_);
    entry->launched = Clock::now();
    failed = failure_;
  }
  if (failed) {
    complete(entry, std::nullopt, failed);
    return;
  }
  const ContextScope scope({.lane = entry->lane,
                            .op_tag = core::bucket_tag(entry->step, entry->bucket.index()),
                            .bytes_sent = entry->bytes_sent});
  try {
    if (entry->bucket.index() == 0) entry->hook->begin_step({});
    const Future<HookResult> future = entry->sparse ? run_sparse_hook(entry) : entry->hook->run_hook(entry->bucket);
    // The captures keep hook, bucket and group alive until the hook completes.
    future.on_done([self = shared_from_this(), entry, future] {
      const std::exception_ptr error = future.error();
      self->complete(entry, error ? std::nullopt : std::optional(future.value()), error);
    });
  } catch (...) {
    complete(entry, std::nullopt, std::current_exception());
  }
}

Future<HookResult> DdpBucketScheduler::run_sparse_hook(PendingBucketPtr entry) {
  std::vector<SparseGradient> own_rows(1, entry->sparse->gradient);
  Future<SparseGradient> union_future = reducer::union_rows(group_, std::move(own_rows), entry->sparse->parameter);
  const SparseGradient rows = co_await union_future;
  {
    const std::lock_guard lock(mutex_);  // for stats()
    const GradBucket& old = entry->bucket;
    entry->bucket = reducer::sparse_bucket(old.index(), old.bucket_count(), rows, entry->sparse->parameter);
  }
  if (rows.indices.numel() == 0) co_return entry->bucket.buffer();
  HookResult result = co_await entry->hook->run_hook(entry->bucket);
  co_return result;
}

void DdpBucketScheduler::complete(const PendingBucketPtr& entry, const std::optional<HookResult>& result,
                                  std::exception_ptr error) {
  Tensor reduced;
  const auto run_unless_failed = [&](const auto& step) {
    try {
      if (!error) step();
    } catch (...) {
      error = std::current_exception();
    }
    if (error) fail(error, *entry);
  };
  run_unless_failed([&] {
    reduced = entry->hook->parse_hook_result(*result);
    hook::check_result([&] { return entry->describe(); }, entry->bucket.buffer(), reduced);
  });
  if (finish_one()) run_unless_failed([&] { entry->hook->end_step({}); });
  {
    const std::lock_guard lock(mutex_);
    entry->ended = Clock::now();
    scheduler_->release(this, entry->lane);
  }
  std::exchange(entry->done, nullptr)(reduced, error);
  scheduler_->launch();
}

void DdpBucketScheduler::fail(const std::exception_ptr& error, const PendingBucket& entry) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return;
    failure_ = error;
  }
  if (hook::is_group_error(error)) return;
  const std::string cause = fmt::format("{} failed: {}", entry.describe(), describe(error));
  group::abort_quietly(*group_, cause);
  entry.hook->on_step_failed(cause);
}

void DdpBucketScheduler::replace_hook(HookPtr hook) {
  if (!hook) throw InvalidArgument("replace_hook: hook must not be null");
  const std::lock_guard lock(mutex_);
  if (in_flight_ > 0 || !last_bucket_seen_) {
    throw InvalidArgument(
        fmt::format("replace_hook: the hook {} cannot be replaced inside a step. Replace it before the forward pass or "
                    "after the backward pass.",
                    hook_->name()));
  }
  hook_ = std::move(hook);
}

HookPtr DdpBucketScheduler::hook() const {
  const std::lock_guard lock(mutex_);
  return hook_;
}

StepStats DdpBucketScheduler::stats() const {
  const std::lock_guard lock(mutex_);
  StepStats stats;
  stats.step = step_;
  stats.hook = hook_->name();
  if (step_buckets_.empty()) return stats;
  const Clock::time_point begin = step_buckets_.front()->ready;
  for (const PendingBucketPtr& entry : step_buckets_) {
    const std::uint64_t sent = entry->bytes_sent->load(std::memory_order_relaxed);
    stats.buckets.push_back({.index = entry->bucket.index(),
                             .parameters = entry->bucket.lengths().size(),
                             .bytes = entry->bucket.buffer().nbytes(),
                             .bytes_sent = sent,
                             .ready = core::seconds(entry->ready - begin),
                             .launched = core::seconds(entry->launched - begin),
                             .done = core::seconds(entry->ended - begin)});
    stats.bytes_sent += sent;
    stats.total = std::max(stats.total, core::seconds(entry->ended - begin));
    stats.backward = std::max(stats.backward, core::seconds(entry->ready - begin));
  }
  stats.exposed_comm = std::max(0.0, stats.total - stats.backward);
  return stats;
}

}  // namespace hookline::adapter
