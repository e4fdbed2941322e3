// Letting go of the GIL for a while, in a way that the end of Python cannot turn into a crash.
#pragma once

#include <nanobind/nanobind.h>

namespace hookline::python {

/// While it lives this thread does not have the GIL. A daemon thread that wants it back while Python ends does not get
/// it and stays here for ever, as Python 3.14 has it: older ones end the thread by unwinding its stack, and every
/// destructor on the way ends the process.
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
