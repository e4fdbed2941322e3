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
class Pending : public Operation {
 public:
  Pending(std::shared_ptr<Engine> engine, std::uint64_t number, Milliseconds timeout, Collective&& collective);

  bool done() override;
  void wait_until(Clock::time_point deadline) override;
  std::exception_ptr error() const override { return over() ? error_ : nullptr; }
  void on_done(Task task) override;
  void when_over(Task task, bool hasten) override;
  const Collective& collective() const override { return collective_; }
  Clock::time_point started() const override { return started_; }
  Clock::time_point finished() const override { return finished_; }
  std::uint64_t number() const override { return number_; }

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
