// An operation that was started: what a process group returns for each call.
#pragma once

#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <hookline/backend/collective.hpp>
#include <hookline/core/call_context.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// The seam that works implement; Python classes may, too. Safe to use from any thread.
class HOOKLINE_EXPORT Work : public std::enable_shared_from_this<Work> {
 public:
  virtual ~Work();

  /// Returns when the operation is done and throws what it failed with. A caller that waits at once runs the operation
  /// in its own thread. Throws Timeout when the time, or the operation's own, is up: the group is broken then. No
  /// thread of this process touches the tensors afterwards.
  virtual void wait(std::optional<Milliseconds> timeout = std::nullopt) = 0;
  /// The outcome, with the output tensors. Continuations run on a thread of the group's.
  [[nodiscard]] virtual Future<std::vector<Tensor>> get_future() = 0;
  /// Has `task` called once it is over, exactly once, perhaps in the thread that ends it: it must be short, must not
  /// throw and must not shut the group down. Unless told to `hasten`, the operation may end only when somebody waits or
  /// starts another one.
  virtual void when_over(Task task, bool hasten);
  virtual bool is_completed() = 0;
  /// Null while it runs and where it succeeded.
  virtual std::exception_ptr exception() = 0;
  bool is_success() { return is_completed() && !exception(); }
  /// The output tensors.
  virtual std::vector<Tensor> result() = 0;

  virtual OpType op_type() const = 0;
  /// Counts the group's operations on this rank, from 1.
  virtual std::uint64_t sequence_number() const = 0;
  /// Where a received message came from, else -1.
  virtual int source_rank() const { return -1; }
  virtual Clock::time_point time_started() const = 0;
  /// Only once it is completed.
  virtual Clock::time_point time_finished() const = 0;
};

using WorkPtr = std::shared_ptr<Work>;

/// A work of whatever completes the future: for groups that make their own operations. It cannot be driven by waiting.
HOOKLINE_EXPORT WorkPtr make_work(Future<std::vector<Tensor>> future, OpType type, std::uint64_t sequence_number = 0);

/// `co_await group.allreduce(…)` gives the output tensors; the coroutine goes on in the context that it was
/// suspended in.
class WorkAwaiter {
 public:
  explicit WorkAwaiter(WorkPtr work) : work_(std::move(work)), context_(current_context()) {}
  bool await_ready() const { return work_->is_completed(); }
  void await_suspend(std::coroutine_handle<> caller) const {
    work_->get_future().on_done([caller, context = context_] {
      const ContextScope scope(context);
      caller.resume();
    });
  }
  std::vector<Tensor> await_resume() const {
    work_->wait();
    return work_->result();
  }

 private:
  const WorkPtr work_;
  const CallContext context_;
};

inline WorkAwaiter operator co_await(WorkPtr work) { return WorkAwaiter(std::move(work)); }

}  // namespace hookline
