// Calls into the library that may wait: without the GIL, and ended by Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/core/interrupt.hpp>

#include "gil_release.hpp"
#include "py_error.hpp"

namespace hookline::python {

/// What a wait calls now and then: throws what a signal's handler raised, and Aborted where Python is ending.
inline void raise_signals() {
  in_python("the wait was given up", [] {
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  });
}

/// While one lives this thread is without the GIL, and Ctrl-C ends its waits. A call guard for methods of the library.
class NativeScope {
  const GilRelease released_;
  const InterruptScope interrupted_{raise_signals};
};

/// Runs `f` in such a scope.
template <class F>
auto natively(F f) {
  const NativeScope scope;
  return f();
}

}  // namespace hookline::python
