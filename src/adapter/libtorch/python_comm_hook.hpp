// Runs Python functions as communication hooks of PyTorch's DistributedDataParallel.
#pragma once

#include <memory>

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace hookline::libtorch {

/// Replaces PyTorch's PythonCommHook with better error reports: a result that does not match the bucket is a ValueError
/// that describes both, and backward() raises the exception set on the hook's future.
class PythonTorchHook final : public c10d::CommHookInterface {
 public:
  /// `function` takes a bucket and returns a torch future. Constructor and destructor do not require the GIL.
  explicit PythonTorchHook(std::shared_ptr<PyObject> function);
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

  /// Releases the functions of all live hooks. Called when Python finalizes, since models may live longer.
  static void close_all();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace hookline::libtorch
