// Checks the results of Python hooks when their futures complete.
#include "adapter/libtorch/python_comm_hook.hpp"

#include <map>
#include <mutex>
#include <string>
#include <utility>

#include <torch/csrc/jit/python/pybind_utils.h>

#include <hookline/core/error.hpp>

#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/live_objects.hpp"
#include "adapter/libtorch/python_work.hpp"

namespace hookline::libtorch {
namespace {

std::string describe_tensor(const at::Tensor& tensor) { return c10::str(tensor.scalar_type(), tensor.sizes()); }

/// Requires the GIL.
at::Tensor tensor_from(const pybind11::object& value) {
  pybind11::object item = value;
  if (pybind11::isinstance<pybind11::list>(value) || pybind11::isinstance<pybind11::tuple>(value)) {
    if (pybind11::len(value) != 1) {
      throw InvalidArgument("communication hook: wrong result of its future: expected one tensor, got a list of " +
                            std::to_string(pybind11::len(value)));
    }
    item = value[pybind11::int_(0)];
  }
  if (!THPVariable_Check(item.ptr())) {
    throw InvalidArgument("communication hook: wrong result of its future: expected one tensor, got " +
                          std::string(pybind11::str(pybind11::type::of(item))));
  }
  return THPVariable_Unpack(item.ptr());
}

at::Tensor tensor_from(const c10::IValue& value) {
  if (value.isTensor()) return value.toTensor();
  if (value.isTensorList() && value.toTensorVector().size() == 1) return value.toTensorVector()[0];
  if (const std::exception_ptr error = exception_from(value)) std::rethrow_exception(error);
  const pybind11::gil_scoped_acquire gil;
  return tensor_from(torch::jit::toPyObject(value));
}

void check(const at::Tensor& result, const at::Tensor& buffer) {
  const bool fits =
      result.scalar_type() == buffer.scalar_type() && result.layout() == buffer.layout() &&
      (buffer.is_sparse() ? result.sizes() == buffer.sizes() : result.dim() == 1 && result.numel() == buffer.numel());
  if (fits) return;
  throw InvalidArgument("communication hook: wrong result: expected " + describe_tensor(buffer) + ", got " +
                        describe_tensor(result) + ". Shape and dtype must be those of the bucket.");
}

}  // namespace

/// The function, and the errors of the current step until one is thrown. Futures carry an error's id instead of the
/// error: the reducer owns the future, and a traceback would own frames that own the model, a reference cycle that
/// Python's garbage collector cannot see.
struct PythonTorchHook::State {
  std::mutex mutex;
  std::shared_ptr<PyObject> function;  ///< null after close_all()
  using Errors = std::map<std::int64_t, std::exception_ptr>;
  Errors errors;
  std::int64_t last_id = 0;
  bool thrown = false;

  std::shared_ptr<PyObject> take_function() {
    const std::lock_guard lock(mutex);
    return std::exchange(function, nullptr);
  }
  std::shared_ptr<PyObject> function_or_throw() {
    const std::lock_guard lock(mutex);
    if (!function) throw Aborted("communication hook: Python is finalizing");
    return function;
  }
  std::int64_t add_error(std::exception_ptr error) {
    const std::lock_guard lock(mutex);
    ++last_id;
    if (!thrown) errors[last_id] = std::move(error);
    return last_id;
  }
  std::exception_ptr take_error(std::int64_t id) {
    const Errors all = reset_errors(true);
    const auto entry = all.find(id);
    return entry == all.end() ? nullptr : entry->second;
  }
  /// Returns the errors, so that they are destroyed outside the mutex: destroying a Python exception takes the GIL.
  Errors reset_errors(bool now_thrown) {
    const std::lock_guard lock(mutex);
    thrown = now_thrown;
    return std::exchange(errors, {});
  }
};

PythonTorchHook::PythonTorchHook(std::shared_ptr<PyObject> function) : state_(std::make_shared<State>()) {
  state_->function = std::move(function);
  LiveObjects<State>::instance().add(state_);
}

void PythonTorchHook::close_all() {
  for (const auto& hook_state : LiveObjects<State>::instance().snapshot()) (void)hook_state->take_function();
}

c10::intrusive_ptr<c10::ivalue::Future> PythonTorchHook::runHook(c10d::GradBucket& bucket) {
  const std::shared_ptr<PyObject> function = with_torch_errors([&] { return state_->function_or_throw(); });
  if (bucket.getIndex() == 0) (void)state_->reset_errors(false);  // a new step
  c10::intrusive_ptr<c10::ivalue::Future> python_future;
  {
    const pybind11::gil_scoped_acquire gil;
    python_future =
        pybind11::handle(function.get())(bucket).cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
  }
  auto result = c10::make_intrusive<c10::ivalue::Future>(c10::AnyType::get());
  python_future->addCallback([result, kept = state_, buffer = bucket.getBuffer()](c10::ivalue::Future& done) {
    try {
      if (done.hasError()) std::rethrow_exception(done.exception_ptr());
      const at::Tensor value = tensor_from(done.constValue());
      check(value, buffer);
      result->markCompleted(c10::IValue(value));
    } catch (...) {
      result->markCompleted(c10::IValue(kept->add_error(to_torch_error(std::current_exception()))));
    }
  });
  return result;
}

at::Tensor PythonTorchHook::parseHookResult(const c10::IValue& result) {
  if (result.isTensor()) return result.toTensor();
  if (const std::exception_ptr error = state_->take_error(result.toInt())) std::rethrow_exception(error);
  throw std::runtime_error("communication hook: failed earlier in this step, and its error was already thrown");
}

}  // namespace hookline::libtorch
