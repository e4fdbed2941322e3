// Native code under Python: waits that Ctrl-C ends, and doing without the GIL. Without Python both do nothing.
#pragma once

#include <exception>
#include <memory>

#include <ATen/core/Tensor.h>

#include <hookline/core/interrupt.hpp>

namespace hookline::libtorch {

/// What the module that PyTorch's Python sees tells of Python; a program without it has none of these.
struct PythonHooks {
  void (*check_signals)() = nullptr;  ///< throws what a signal's handler raised
  void* (*release_gil)() = nullptr;   ///< null where this thread does not have it
  void (*take_gil_back)(void* state) = nullptr;
  /// An error of this library as a Python exception, for code of PyTorch's to throw; null where Python is ending.
  std::exception_ptr (*raised)(const std::exception_ptr& error) = nullptr;
  /// Owns Python's object of a tensor, for methods of Python groups to be called with; null where Python is ending.
  std::shared_ptr<void> (*owner)(const at::Tensor& tensor) = nullptr;
};
inline PythonHooks& python_hooks() noexcept {
  static PythonHooks hooks;
  return hooks;
}

/// While one lives, long waits of this thread end when the user presses Ctrl-C.
class Interruptible {
 public:
  Interruptible()
      : scope_([] {
          if (python_hooks().check_signals) python_hooks().check_signals();
        }) {}

 private:
  const InterruptScope scope_;
};

/// While one lives this thread does not have the GIL.
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
