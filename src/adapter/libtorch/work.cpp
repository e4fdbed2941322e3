// Waits for operations, and exposes their results as torch futures.
#include "adapter/libtorch/work.hpp"

#include <optional>
#include <utility>

#include <ATen/core/ivalue.h>

#include "adapter/callback_pool.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/gil.hpp"

namespace hookline::libtorch {
namespace {

c10d::WorkResult to_work_result(const std::exception_ptr& error) {
  if (!error) return c10d::WorkResult::SUCCESS;
  try {
    std::rethrow_exception(error);
  } catch (const Timeout&) {
    return c10d::WorkResult::TIMEOUT;
  } catch (...) {
    return c10d::WorkResult::COMM_ERROR;
  }
}

}  // namespace

TorchWork::TorchWork(int rank, c10d::OpType type, const char* title, const std::vector<at::Tensor>& inputs,
                     WorkPtr work, std::vector<at::Tensor> outputs)
    : Work(rank, type, title, title ? std::optional(inputs) : std::nullopt),
      work_(std::move(work)),
      outputs_(std::move(outputs)) {
  if (recordFunctionEndCallback_) work_->on_complete([end = recordFunctionEndCallback_] { end(); }, Urgency::low);
}

std::exception_ptr TorchWork::exception() const {
  const std::exception_ptr error = work_->exception();
  return error ? to_torch_error(error) : nullptr;
}

bool TorchWork::wait(std::chrono::milliseconds timeout) {
  with_torch_errors([&] {
    const Interruptible interruptible;
    work_->wait(timeout == kNoTimeout ? std::nullopt : std::optional<Milliseconds>(timeout));
  });
  return true;
}

void TorchWork::abort() {
  with_torch_errors(
      [] { throw Unsupported("Work.abort: a single operation cannot be aborted. Abort the process group."); });
}

c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFuture() {
  const std::lock_guard lock(future_mutex_);
  if (future_) return future_;
  future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  if (work_->is_completed() && !work_->exception()) {
    future_->markCompleted(c10::IValue(outputs_));
    return future_;
  }
  // Posted to the pool: callbacks run in the thread that completes the future, and may wait for another future.
  work_->on_complete(
      [work = work_, outputs = outputs_, future = future_] {
        adapter::CallbackPool::instance().post([work, outputs, future] {
          if (const std::exception_ptr error = work->exception()) {
            future->setError(to_torch_error(error));
          } else {
            future->markCompleted(c10::IValue(outputs));
          }
        });
      },
      Urgency::high);
  return future_;
}

c10::intrusive_ptr<c10::ivalue::Future> TorchWork::getFutureResult() {
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::IntType::get());
  work_->on_complete(
      [work = work_, result] {
        adapter::CallbackPool::instance().post([work, result] {
          result->markCompleted(c10::IValue(static_cast<std::int64_t>(to_work_result(work->exception()))));
        });
      },
      Urgency::high);
  return result;
}

float TorchWork::getDuration() const {
  return std::chrono::duration<float, std::milli>(work_->time_finished() - work_->time_started()).count();
}

}  // namespace hookline::libtorch
