// What every operation of the embedded backends has in common: being waited for, and being over.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <vector>

#include <hookline/backend/backend.hpp>

namespace hookline::embedded {

class Engine;

/// Pending, then over, once. Only the thread that holds the claim on the operation's lane (or on the mail) moves it on
/// and completes it; anybody may wait, and whoever waits drives the engine.
class Pending : public Work {
 public:
  Pending(std::shared_ptr<Engine> engine, std::uint64_t number, Milliseconds timeout, Collective&& collective);

  void wait(std::optional<Milliseconds> timeout) override;
  Future<std::vector<Tensor>> get_future() override;
  void when_over(Task task, bool hasten) override;
  bool is_completed() override;
  std::exception_ptr exception() override { return error(); }
  std::vector<Tensor> result() override { return collective_.outputs; }
  OpType op_type() const override { return collective_.type; }
  std::uint64_t sequence_number() const override { return collective_.sequence_number; }
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override { return finished_; }

  const Collective& collective() const noexcept { return collective_; }
  /// Its number in its lane, or among the sends and receives.
  std::uint64_t number() const noexcept { return number_; }
  std::exception_ptr error() const { return over() ? error_ : nullptr; }
  bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  Clock::time_point deadline() const noexcept { return deadline_.load(std::memory_order_relaxed); }
  /// Brings the deadline forward; a later one changes nothing.
  void shorten(Clock::time_point deadline) noexcept;

  /// Ends it, well or with an error, and hands its tasks to the engine's worker. Under the claim.
  void complete(std::exception_ptr error);

  /// Runs it as far as it can without waiting; true at its end. Under the claim. Throws what it fails with.
  virtual bool step() = 0;
  /// Grows whenever step() got on.
  virtual std::uint64_t moves() const = 0;
  virtual std::vector<int> awaited() const = 0;
  virtual std::string describe() const = 0;

 private:
  /// Takes the task, unless it is over already. Who attaches says so before looking at over_, and complete() looks
  /// after setting it: one of them sees the other, and most operations never take the mutex.
  bool attach(std::vector<Task>& tasks, Task& task);
  void on_done(Task task);

  const std::shared_ptr<Engine> engine_;
  const Collective collective_;
  const std::uint64_t number_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<Clock::time_point> deadline_;
  Clock::time_point finished_;
  std::exception_ptr error_;
  std::atomic<bool> over_ = false;
  std::atomic<bool> attached_ = false;
  std::mutex mutex_;
  std::vector<Task> tasks_;
  std::vector<Task> quick_tasks_;
};

}  // namespace hookline::embedded
