// Hooks for buckets that a framework's own reducer fills: started in bucket order, each in its lane.
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

/// What the reducer of this library does to keep collectives of different buckets apart, for another one's buckets: a
/// group with lanes has several hooks under way, one without has them in bucket order. Every rank hands over the same
/// buckets in the same order; a step begins with bucket 0. Safe to use from any thread.
class HOOKLINE_EXPORT HookLanes : public std::enable_shared_from_this<HookLanes> {
 public:
  /// Gets the reduced buffer, or the error; called once, on the thread that ends the hook.
  using Done = std::function<void(const Tensor& reduced, const std::exception_ptr& error)>;

  /// InvalidArgument where group or hook is missing.
  HookLanes(std::shared_ptr<ProcessGroup> group, HookPtr hook);

  /// Runs the hook on a bucket, or has it run when those before it in its lane are through. After an error every later
  /// bucket gets it at once. A hook's own error aborts the group, so that no other rank waits for this one.
  void run(GradBucket bucket, Done done);

  /// The same for a bucket of one parameter with a gradient of few rows, which may be others on each rank: the hook
  /// sees those that any rank has, and `done` gets them reduced.
  using SparseDone = std::function<void(const SparseGradient& reduced, const std::exception_ptr& error)>;
  void run_sparse(std::size_t index, std::size_t bucket_count, SparseGradient own, Tensor parameter, SparseDone done);

  /// Another hook from the next step on. InvalidArgument while a step is under way.
  void replace(HookPtr hook);
  HookPtr hook() const;
  const std::shared_ptr<ProcessGroup>& group() const noexcept { return group_; }

  /// Of the last step that began.
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
  std::size_t pending_ = 0;  ///< added, and not ended
  bool last_seen_ = true;
  std::exception_ptr failure_;
};

}  // namespace hookline::adapter
