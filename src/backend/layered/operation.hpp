// One operation of a layered group: waits in its lane's queue, is run by the lane's thread, and is over.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include <hookline/backend/work.hpp>

namespace hookline::layered {

class Layers;

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

  /// Ends it, well or with an error. Called once.
  void complete(std::exception_ptr error);

 private:
  bool over() const;
  /// Whether it is over, by that time at the latest.
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
  Promise<std::vector<Tensor>> outcome_;  ///< continuations run on the group's worker
  Promise<void> end_;                     ///< and here in the thread that ends it
};

}  // namespace hookline::layered
