// The Work of a hierarchical group.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include <hookline/backend/work.hpp>

namespace hookline::hierarchical {

class HierarchicalContext;

/// An operation that is queued in a lane and run by the lane's thread.
class HierarchicalWork final : public Work {
 public:
  HierarchicalWork(std::shared_ptr<HierarchicalContext> context, std::shared_ptr<Executor> executor,
                   Operation&& operation, Milliseconds timeout);

  void wait(std::optional<Milliseconds> timeout) override;
  Future<std::vector<Tensor>> get_future() override;
  void on_complete(Task callback, Urgency urgency) override;
  bool is_completed() override;
  std::exception_ptr exception() override;
  std::vector<Tensor> result() override { return operation_.outputs; }
  OpType op_type() const override { return operation_.type; }
  std::uint64_t sequence_number() const override { return operation_.sequence_number; }
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override;

  const Operation& operation() const noexcept { return operation_; }
  Clock::time_point deadline() const noexcept { return deadline_; }

  /// Completes the operation, with an error if not null. Called once.
  void complete(std::exception_ptr error);

 private:
  bool is_done() const;
  /// Blocks until the operation is done (returns true) or `time_limit` has passed (returns false).
  bool wait_until_done(Clock::time_point time_limit);

  const std::shared_ptr<HierarchicalContext> context_;
  const Operation operation_;
  const Clock::time_point started_ = Clock::now();
  const Clock::time_point deadline_;
  mutable std::mutex mutex_;
  std::condition_variable done_changed_;
  bool done_ = false;
  Clock::time_point finished_;
  std::exception_ptr error_;
  Promise<std::vector<Tensor>> result_promise_;  ///< continuations run on the worker thread
  Promise<void> completion_promise_;             ///< continuations run in the thread that completes the operation
};

}  // namespace hookline::hierarchical
