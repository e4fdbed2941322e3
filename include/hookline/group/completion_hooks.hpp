// Completion hooks: callbacks that run before an operation counts as completed.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <hookline/backend/work.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/core/export.hpp>
#include <hookline/group/work_info.hpp>

namespace hookline {

/// Returns the fields of WorkInfo that are known before the operation starts, including the current lane.
HOOKLINE_EXPORT WorkInfo describe_work(const Operation& operation);

/// The completion hooks of a group, for implementations of ProcessGroup. Without hooks an operation costs one any().
class HOOKLINE_EXPORT CompletionHooks {
 public:
  CompletionHooks();
  CompletionHooks(const CompletionHooks&) = delete;
  CompletionHooks& operator=(const CompletionHooks&) = delete;

  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  /// Adds a hook for operations that start from now on. It runs on `executor`, in completion order, or without an
  /// executor on the thread that completes the operation.
  void add(OnCompletionHook hook, std::shared_ptr<Executor> executor);
  /// Returns a Work for the same operation that completes after the hooks have run, and fails with the first exception
  /// of a hook. The fields of `info` that are known only at completion are filled in later.
  WorkPtr attach(WorkInfo info, const WorkPtr& work);
  /// Blocks until every attached operation and its hooks have completed. Throws Timeout, or a hook's exception that no
  /// wait() has thrown yet.
  void wait(Milliseconds timeout);

 private:
  struct Queue;
  using Queues = std::vector<std::shared_ptr<Queue>>;
  struct State;
  class HookedWork;

  std::atomic<bool> any_ = false;
  const std::shared_ptr<State> state_;
};

}  // namespace hookline
