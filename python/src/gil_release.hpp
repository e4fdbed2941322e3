// A scope without the GIL that is safe during Python's finalization.
#pragma once

#include <nanobind/nanobind.h>

namespace hookline::python {

/// Releases the GIL for its lifetime. During finalization, a daemon thread blocks forever in the destructor, as in
/// Python 3.14. Older versions unwind the thread's stack instead, which terminates the process in noexcept destructors.
class GilRelease {
 public:
  GilRelease() noexcept : state_(PyEval_SaveThread()) {}
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;
  ~GilRelease();

 private:
  PyThreadState* const state_;
};

}  // namespace hookline::python
