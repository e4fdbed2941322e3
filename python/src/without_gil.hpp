// Calls into the library that may block: without the GIL, and interruptible by Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/core/interrupt.hpp>

#include "gil_release.hpp"
#include "py_error.hpp"

namespace hookline::python {

/// Called periodically by blocking waits. Throws the exception of a Python signal handler, or Aborted during Python's
/// finalization.
inline void check_signals() {
  call_python("wait aborted", [] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

/// Releases the GIL for its lifetime; Ctrl-C interrupts waits. Usable as a call guard for bound methods.
class InterruptibleGilRelease {
  const GilRelease released_;
  const InterruptScope interrupt_scope_{check_signals};
};

/// Runs `f` without the GIL; Ctrl-C interrupts its waits.
template <class F>
auto without_gil(F f) {
  const InterruptibleGilRelease scope;
  return f();
}

}  // namespace hookline::python
