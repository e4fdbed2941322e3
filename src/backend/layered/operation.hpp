// The Work of a hierarchical group.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include <hookline/backend/work.hpp>

namespace hookline::layered {

class Layers;

/// An operation that is queued in a lane and run by the lane's thread.
class Operation final : public Work {
 public:
  Operation(std::shared_ptr<Layers> layers, std::shared_ptr<Executor> executor, Collective&& collective,
            Milliseconds timeout);

  void wait(std::optional<Milliseconds> timeout) override;
  Future<std::vector<Tensor>> get_future() override;
  void when_over(Task task, bool hasten) override;
  bool is_completed() override;
  std::exception_ptr exception() override;
  std::vector<Tensor> result() override { return collective_.outputs; }
  OpType op_type() const override { return collective_.type; }
  std::uint64_t sequence_number() const override { return collective_.sequence_number; }
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override;

  const Collective& collective() const noexcept { return collective_; }
  Clock::time_point deadline() const noexcept { return deadline_; }

  /// Completes the operation, with an error if not null. Called once.
  void complete(std::exception_ptr error);

 private:
  bool over() const;
  /// Blocks until the operation is done (returns true) or `time` has passed (returns false).
  bool over_by(Clock::time_point time);

  const std::shared_ptr<Layers> layers_;
  const Collective collective_;
  const Clock::time_point started_ = Clock::now();
  const Clock::time_point deadline_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool over_ = false;
  Clock::time_point finished_;
  std::exception_ptr error_;
  Promise<std::vector<Tensor>> outcome_;  ///< continuations run on the worker thread
  Promise<void> end_;                     ///< continuations run in the thread that completes the operation
};

}  // namespace hookline::layered
