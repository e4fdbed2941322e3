// Converts futures returned by Python code to native futures of an operation's outputs.
#pragma once

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/deadline.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/tensor.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// Returns a native future that completes with a Python future of hookline, torch or concurrent.futures. The value of
/// the Python future is a list of arrays, one array, or None, which stands for `outputs`. The native future keeps
/// `keep_alive` and the Python future alive until it is done. At the deadline it fails with a Timeout whose message
/// starts with `call_site`. Errors keep their type and Python object, which gets a note with `call_site`. Needs the
/// GIL.
Future<std::vector<Tensor>> tensors_of_future(nb::handle future, std::string call_site, PyRef keep_alive,
                                              std::vector<Tensor> outputs, Clock::time_point deadline);

/// True if the object has the interface of a future.
bool is_future(nb::handle object);

/// Fails all pending futures and stops the timer thread. Called at Python's exit.
void stop_deadline_timer();

}  // namespace hookline::python
