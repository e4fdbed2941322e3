// The Work interface: a handle to an operation in progress.
#pragma once

#include <coroutine>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

#include <hookline/backend/operation.hpp>
#include <hookline/core/call_context.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// The urgency of a completion callback. low: the operation may stay pending until a thread waits for it or starts
/// another operation. high: a background thread drives the operation meanwhile.
enum class Urgency : std::uint8_t { low, high };

/// A handle to an operation in progress. Thread-safe. Python classes may implement it.
class HOOKLINE_EXPORT Work : public std::enable_shared_from_this<Work> {
 public:
  virtual ~Work();

  /// Blocks until the operation completes; throws its error. The calling thread drives the operation meanwhile. Throws
  /// Timeout when `timeout` or the operation's own timeout expires, which breaks the group. After it returns or throws,
  /// no thread of this process accesses the tensors.
  virtual void wait(std::optional<Milliseconds> timeout = std::nullopt) = 0;
  /// Returns a future of the output tensors. Continuations run on a thread of the group.
  [[nodiscard]] virtual Future<std::vector<Tensor>> get_future() = 0;
  /// Runs `callback` exactly once on completion, possibly on the thread that completes the operation. It must be short,
  /// must not throw and must not shut down the group.
  virtual void on_complete(Task callback, Urgency urgency);
  virtual bool is_completed() = 0;
  /// Returns the error; null while the operation is pending or if it succeeded.
  virtual std::exception_ptr exception() = 0;
  bool is_success() { return is_completed() && !exception(); }
  /// Returns the output tensors.
  virtual std::vector<Tensor> result() = 0;

  virtual OpType op_type() const = 0;
  /// Returns the operation's number: the group counts its operations on this rank from 1.
  virtual std::uint64_t sequence_number() const = 0;
  /// Returns the source rank of a completed receive, else -1.
  virtual int source_rank() const { return -1; }
  virtual Clock::time_point time_started() const = 0;
  /// Returns the time of completion. Call after completion.
  virtual Clock::time_point time_finished() const = 0;
};

using WorkPtr = std::shared_ptr<Work>;

/// Wraps a future as a Work, for process groups that implement their own operations. wait() does not drive it.
HOOKLINE_EXPORT WorkPtr make_work(Future<std::vector<Tensor>> future, OpType type, std::uint64_t sequence_number = 0);

/// Awaiter of `co_await group.allreduce(…)`, which returns the output tensors. The coroutine resumes in the call
/// context in which it was suspended.
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
