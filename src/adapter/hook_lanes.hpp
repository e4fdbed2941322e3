// Runs hooks on buckets filled by another framework's reducer: in bucket order, each in its lane.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
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

#include "hook/hook_lane.hpp"

namespace hookline::adapter {

/// Schedules hooks so that collectives of different buckets match across ranks, as Hookline's own reducer does. On a
/// group with lanes several hooks run concurrently; without lanes they run one after another. Every rank submits the
/// same buckets in the same order; a step begins with bucket 0. Thread-safe.
class HOOKLINE_EXPORT HookLanes : public std::enable_shared_from_this<HookLanes> {
 public:
  /// Receives the reduced buffer or the error. Called once, on the thread that completes the hook.
  using Done = std::function<void(const Tensor& reduced, const std::exception_ptr& error)>;

  /// Throws InvalidArgument if `group` or `hook` is null.
  HookLanes(std::shared_ptr<ProcessGroup> group, HookPtr hook);

  /// Runs the hook on a bucket once its lane is free. After an error every later bucket fails with it. An error of the
  /// hook itself aborts the group, so that no other rank waits for this one.
  void run(GradBucket bucket, Done done);

  /// The same for a sparse bucket: one parameter, with a gradient of few rows that may differ between ranks. The hook
  /// gets the union of the rows, and `done` gets them reduced.
  using SparseDone = std::function<void(const SparseGradient& reduced, const std::exception_ptr& error)>;
  void run_sparse(std::size_t index, std::size_t bucket_count, SparseGradient own, Tensor parameter, SparseDone done);

  /// Replaces the hook from the next step on. Throws InvalidArgument inside a step.
  void replace(HookPtr hook);
  HookPtr hook() const;
  const std::shared_ptr<ProcessGroup>& group() const noexcept { return group_; }

  /// Returns the statistics of the last started step.
  StepStats stats() const;

 private:
  struct Entry;
  using EntryPtr = std::shared_ptr<Entry>;

  void add(const EntryPtr& entry);
  void launch();
  void start(const EntryPtr& entry);
  Future<HookResult> run_rows(EntryPtr entry);
  void end(const EntryPtr& entry, const HookResult& result, std::exception_ptr error);
  void fail(const std::exception_ptr& error, const Entry& entry);
  std::exception_ptr failure() const;
  bool ends_step();

  const std::shared_ptr<ProcessGroup> group_;

  mutable std::mutex mutex_;  ///< guards what follows
  HookPtr hook_;
  std::deque<EntryPtr> waiting_;
  hook::Launcher launcher_;
  std::vector<EntryPtr> step_entries_;
  std::uint64_t step_ = 0;
  std::size_t pending_ = 0;  ///< buckets submitted and not completed
  bool last_seen_ = true;
  std::exception_ptr failure_;
};

}  // namespace hookline::adapter
