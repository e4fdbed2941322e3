// Native code under Python: interruptible waits, and releasing the GIL. Without Python both have no effect.
#pragma once

#include <exception>
#include <memory>

#include <ATen/core/Tensor.h>

#include <hookline/core/interrupt.hpp>

namespace hookline::libtorch {

/// Functions that need Python, set by the extension module. All null in a program without Python.
struct PythonRuntime {
  void (*check_signals)() = nullptr;  ///< throws what a signal handler raised
  void* (*release_gil)() = nullptr;   ///< returns null if this thread does not hold the GIL
  void (*reacquire_gil)(void* state) = nullptr;
  /// Converts a Hookline error to a Python exception for PyTorch to raise; null while Python finalizes.
  std::exception_ptr (*to_python_error)(const std::exception_ptr& error) = nullptr;
  /// Returns an owner of the tensor's Python object, to pass to methods of Python groups; null while Python finalizes.
  std::shared_ptr<void> (*tensor_owner)(const at::Tensor& tensor) = nullptr;
};
inline PythonRuntime& python_runtime() noexcept {
  static PythonRuntime runtime;
  return runtime;
}

/// A scope in which Ctrl-C ends waits of this thread.
class Interruptible {
 public:
  Interruptible()
      : scope_([] {
          if (python_runtime().check_signals) python_runtime().check_signals();
        }) {}

 private:
  const InterruptScope scope_;
};

/// A scope in which this thread does not hold the GIL.
class GilRelease {
 public:
  GilRelease() : state_(python_runtime().release_gil ? python_runtime().release_gil() : nullptr) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease() {
    if (state_) python_runtime().reacquire_gil(state_);
  }

 private:
  void* const state_;
};

}  // namespace hookline::libtorch
