// A hook that is a Python function, on the buckets of PyTorch's DistributedDataParallel.
#pragma once

#include <memory>

#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/comm.hpp>

namespace hookline::libtorch {

/// Does what PyTorch's own does, and finds out more: a result that is no tensor like the bucket's is a ValueError with
/// both, and an exception that the future was given arrives at backward() as it is.
class PythonTorchHook final : public c10d::CommHookInterface {
 public:
  /// `function` takes a bucket and returns a future of torch's. Called, like the destructor, with the GIL or without.
  explicit PythonTorchHook(std::shared_ptr<PyObject> function);
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

  /// Lets go of the functions of those that live: at the end of Python, which models may outlive.
  static void close_all();

 private:
  struct Kept;
  const std::shared_ptr<Kept> kept_;
};

}  // namespace hookline::libtorch
