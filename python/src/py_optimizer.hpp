// What steps parameters, as Python users give it: an optimizer, its text, or any callable.
#pragma once

#include <optional>

#include <nanobind/nanobind.h>

#include <hookline/hook/comm_hook.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// An optimizer for its text, anything else as it is, empty for None. Needs the GIL.
PyRef stepper_of(nb::object optimizer);

/// The hook with the steps of `stepper` behind it; the hook itself where that is empty. What it refers to of Python's
/// is a copy of the reference, which the garbage collector knows as one. Needs the GIL.
HookPtr overlapped(HookPtr hook, const PyRef& stepper, std::optional<double> clip_norm, bool for_torch);

}  // namespace hookline::python
