// Runs hooks on buckets filled by another framework's reducer: in the group's launch order, each in its lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>
#include <hookline/reducer/parameter.hpp>
#include <hookline/reducer/stats.hpp>

#include "hook/bucket_scheduler.hpp"

namespace hookline::adapter {

/// Schedules hooks so that collectives of different buckets match across ranks, as Hookline's own reducer does. On a
/// group with lanes several hooks run concurrently; without lanes they run one after another. All ranks
/// must submit the buckets of all models on the group in the same order. A step begins with bucket 0. Thread-safe.
class HOOKLINE_EXPORT DdpBucketScheduler : public std::enable_shared_from_this<DdpBucketScheduler> {
 public:
  /// Receives the reduced buffer or the error. Called once, on the thread that completes the hook.
  using Callback = std::function<void(const Tensor& reduced, const std::exception_ptr& error)>;

  /// Throws InvalidArgument if `group` or `hook` is null.
  DdpBucketScheduler(std::shared_ptr<ProcessGroup> group, HookPtr hook);

  /// Runs the hook on a bucket once its lane is free. After an error every later bucket fails with it. An error of the
  /// hook itself aborts the group, so that no other rank waits for this one.
  void run(GradBucket bucket, Callback done);

  /// As run(), for a sparse bucket: one parameter, whose gradient consists of rows that may differ between ranks. The
  /// hook gets the union of the rows, and `done` gets the reduced rows.
  using SparseCallback = std::function<void(const SparseGradient& reduced, const std::exception_ptr& error)>;
  void run_sparse(std::size_t index, std::size_t bucket_count, SparseGradient own, Tensor parameter,
                  SparseCallback done);

  /// Replaces the hook from the next step on. Throws InvalidArgument inside a step.
  void replace_hook(HookPtr hook);
  HookPtr hook() const;
  const std::shared_ptr<ProcessGroup>& group() const noexcept { return group_; }

  /// Returns the statistics of the last started step.
  StepStats stats() const;

 private:
  struct PendingBucket;
  using PendingBucketPtr = std::shared_ptr<PendingBucket>;

  void enqueue(const PendingBucketPtr& entry);
  void start(const PendingBucketPtr& entry);
  Future<HookResult> run_sparse_hook(PendingBucketPtr entry);
  void complete(const PendingBucketPtr& entry, const std::optional<HookResult>& result, std::exception_ptr error);
  void fail(const std::exception_ptr& error, const PendingBucket& entry);
  std::exception_ptr failure() const;
  bool finish_one();

  const std::shared_ptr<ProcessGroup> group_;
  const int lanes_;
  const std::shared_ptr<hook::BucketScheduler> scheduler_;  ///< shared with all reducers and models on the group

  mutable std::mutex mutex_;  ///< guards the members below
  HookPtr hook_;
  std::vector<PendingBucketPtr> step_buckets_;
  std::uint64_t step_ = 0;
  std::size_t in_flight_ = 0;  ///< buckets submitted and not completed
  bool last_bucket_seen_ = true;
  std::exception_ptr failure_;
};

}  // namespace hookline::adapter
