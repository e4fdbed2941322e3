// OpWork: the base of operations that the waiting thread drives.
#pragma once

#include <atomic>
#include <mutex>
#include <vector>

#include <hookline/backend/backend.hpp>

namespace hookline::backend {

/// A Work that changes once from pending to done. Each thread that waits drives it.
class OpWork : public Work {
 public:
  OpWork(Milliseconds timeout, Operation&& operation);

  void wait(std::optional<Milliseconds> timeout) override;
  Future<std::vector<Tensor>> get_future() override;
  void on_complete(Task callback, Urgency urgency) override;
  bool is_completed() override;
  std::exception_ptr exception() override { return done() ? error_ : nullptr; }
  std::vector<Tensor> result() override { return operation_.outputs; }
  OpType op_type() const override { return operation_.type; }
  std::uint64_t sequence_number() const override { return operation_.sequence_number; }
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override { return finished_; }

  const Operation& operation() const noexcept { return operation_; }
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  Clock::time_point deadline() const noexcept { return deadline_.load(std::memory_order_relaxed); }
  /// Moves the deadline to an earlier time; ignores a later one.
  void tighten_deadline(Clock::time_point deadline) noexcept;

  /// Completes the operation, with an error if not null, and runs its callbacks. Call once, from the thread that drives
  /// the operation or removed it from its queue.
  void complete(std::exception_ptr error);

  /// Describes the operation for messages: "allreduce of 1000 float32, sum (number 3)".
  virtual std::string describe() const = 0;

 private:
  virtual void refuse_in_forked_child(std::string_view call) const = 0;
  /// Drives the operation and returns when it is done, at its deadline at the latest.
  virtual void drive() = 0;
  /// Makes progress without blocking.
  virtual void poll() = 0;
  /// Wakes a background thread to drive the operation, in case no thread waits for it.
  virtual void expedite() = 0;
  /// Runs a task on the group's worker thread.
  virtual void post_to_worker(Task task) = 0;
  /// Wakes the threads of this rank that wait for the operation.
  virtual void notify() noexcept {}

  /// Adds the callback and returns true; returns false if the operation is done. Dekker handshake, all seq_cst: this
  /// function stores has_callbacks_, then loads done_; complete() stores done_, then loads has_callbacks_. So most
  /// operations complete without locking the mutex.
  bool add_callback(std::vector<Task>& callbacks, Task& callback);

  const Operation operation_;
  const Clock::time_point started_ = Clock::now();
  std::atomic<Clock::time_point> deadline_;
  Clock::time_point finished_;
  std::exception_ptr error_;
  std::atomic<bool> done_ = false;
  std::atomic<bool> has_callbacks_ = false;
  std::mutex mutex_;
  std::vector<Task> worker_callbacks_;
  std::vector<Task> inline_callbacks_;
};

}  // namespace hookline::backend
