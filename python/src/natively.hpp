// Calls into the library that may wait: without the GIL, and ended by Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>

#include "gil_release.hpp"
#include "py_error.hpp"
#include "py_object.hpp"

namespace hookline::python {

/// What a wait calls now and then: throws what a signal's handler raised, and Aborted where Python is ending.
inline void raise_signals() {
  const GilStay stay;
  if (!stay) throw Aborted("the wait was given up: Python is ending");
  translating_errors([] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

/// Runs `f` without the GIL; Ctrl-C ends its waits.
template <class F>
auto natively(F f) {
  const GilRelease released;
  const InterruptScope scope(raise_signals);
  return f();
}

}  // namespace hookline::python
