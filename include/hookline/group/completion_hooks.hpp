// Completion hooks: works that are over only when every hook has been told.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <hookline/backend/work.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/core/export.hpp>
#include <hookline/group/work_info.hpp>

namespace hookline {

/// What is known of an operation before it starts, the current lane among it.
HOOKLINE_EXPORT WorkInfo describe_work(const Collective& collective);

/// The hooks of a group, for those that implement one. Where there are none, any() is all that an operation pays.
class HOOKLINE_EXPORT CompletionHooks {
 public:
  CompletionHooks();
  CompletionHooks(const CompletionHooks&) = delete;
  CompletionHooks& operator=(const CompletionHooks&) = delete;

  bool any() const noexcept { return any_.load(std::memory_order_relaxed); }
  /// Hooks of operations that start from now on. With an executor the hook is called there, in the order in which the
  /// operations end; without one in the thread that ends the operation.
  void add(OnCompletionHook hook, std::shared_ptr<Executor> executor);
  /// A work of the same operation that is done when the hooks have been called, and fails with what one of them threw.
  /// `info` lacks what is known only at the end.
  WorkPtr attach(WorkInfo info, const WorkPtr& work);
  /// Waits for every operation that was attached, and for its hooks. Throws what a hook threw where no wait() did, and
  /// Timeout.
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
