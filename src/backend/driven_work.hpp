// What operations that are driven by whoever waits have in common: being waited for, and being over.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include <hookline/backend/backend.hpp>

namespace hookline::backend {

/// Pending, then over, once. Anybody may wait, and drives meanwhile.
class DrivenWork : public Work {
 public:
  DrivenWork(Milliseconds timeout, Collective&& collective);

  void wait(std::optional<Milliseconds> timeout) override;
  Future<std::vector<Tensor>> get_future() override;
  void when_over(Task task, bool hasten) override;
  bool is_completed() override;
  std::exception_ptr exception() override { return over() ? error_ : nullptr; }
  std::vector<Tensor> result() override { return collective_.outputs; }
  OpType op_type() const override { return collective_.type; }
  std::uint64_t sequence_number() const override { return collective_.sequence_number; }
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override { return finished_; }

  const Collective& collective() const noexcept { return collective_; }
  bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  Clock::time_point deadline() const noexcept { return deadline_.load(std::memory_order_relaxed); }
  /// Brings the deadline forward; a later one changes nothing.
  void shorten(Clock::time_point deadline) noexcept;

  /// Ends it, well or with an error, and has its tasks run. By the one who drives it, or who has taken it from all.
  void complete(std::exception_ptr error);

  /// The operation in words: "allreduce of 1000 float32, sum (number 3)".
  virtual std::string describe() const = 0;

 private:
  virtual void refuse_in_forked_child(std::string_view call) const = 0;
  /// Returns when it is over, which it is at its deadline at the latest.
  virtual void drive() = 0;
  /// Sees without waiting whether it got on.
  virtual void look() = 0;
  /// Has somebody see to it soon, as nobody may ever wait for it.
  virtual void hurry() = 0;
  /// Runs a task on the group's worker.
  virtual void hand_over(Task task) = 0;
  /// It is over; others of this rank may sleep over it.
  virtual void announce() noexcept {}

  /// Takes the task, unless it is over already. Who attaches says so before looking at over_, and complete() looks
  /// after setting it: one of them sees the other, and most operations never take the mutex.
  bool attach(std::vector<Task>& tasks, Task& task);

  const Collective collective_;
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

}  // namespace hookline::backend
