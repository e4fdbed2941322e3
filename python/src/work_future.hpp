// Futures that Python code returns where C++ expects the outcome of an operation.
#pragma once

#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/deadline.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/tensor.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// A future of the tensors that a Python future (hookline's, torch's or that of concurrent.futures) is completed with:
/// a list of arrays, one array, or None, which stands for `outputs`. It keeps `keep` and the Python future alive until
/// it is done, which it is at the deadline at the latest, with a Timeout that begins with `where`. An error keeps its
/// type and its Python object, to which a note with `where` is added. Needs the GIL. Throws a TypeError for what is no
/// future.
Future<std::vector<Tensor>> tensors_of_future(nb::handle future, std::string where, PyRef keep,
                                              std::vector<Tensor> outputs, Clock::time_point deadline);

/// Whether the object can be taken as a future.
bool is_future(nb::handle object);

/// Lets go of what waits for its deadline; when Python ends.
void end_deadlines();

}  // namespace hookline::python
