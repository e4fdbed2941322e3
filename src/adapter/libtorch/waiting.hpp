// Native code under Python: interruptible waits, and releasing the GIL. Without Python both have no effect.
#pragma once

#include <exception>
#include <memory>

#include <ATen/core/Tensor.h>

#include <hookline/core/interrupt.hpp>

namespace hookline::libtorch {

/// Functions that need Python, set by the extension module. All null in a program without Python.
struct PythonHooks {
  void (*check_signals)() = nullptr;  ///< throws what a signal handler raised
  void* (*release_gil)() = nullptr;   ///< returns null if this thread does not hold the GIL
  void (*take_gil_back)(void* state) = nullptr;
  /// Converts a Hookline error to a Python exception for PyTorch to raise; null while Python finalizes.
  std::exception_ptr (*raised)(const std::exception_ptr& error) = nullptr;
  /// Returns an owner of the tensor's Python object, to pass to methods of Python groups; null while Python finalizes.
  std::shared_ptr<void> (*owner)(const at::Tensor& tensor) = nullptr;
};
inline PythonHooks& python_hooks() noexcept {
  static PythonHooks hooks;
  return hooks;
}

/// A scope in which Ctrl-C ends waits of this thread.
class Interruptible {
 public:
  Interruptible()
      : scope_([] {
          if (python_hooks().check_signals) python_hooks().check_signals();
        }) {}

 private:
  const InterruptScope scope_;
};

/// A scope in which this thread does not hold the GIL.
class WithoutGil {
 public:
  WithoutGil() : state_(python_hooks().release_gil ? python_hooks().release_gil() : nullptr) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() {
    if (state_) python_hooks().take_gil_back(state_);
  }

 private:
  void* const state_;
};

}  // namespace hookline::libtorch
