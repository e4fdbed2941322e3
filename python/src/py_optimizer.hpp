// Optimizer arguments in Python: an optimizer, its spec, or any callable.
#pragma once

#include <optional>

#include <nanobind/nanobind.h>

#include <hookline/hook/comm_hook.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// Returns the optimizer for a spec, other objects unchanged, and an empty reference for None. Needs the GIL.
PyRef make_stepper(nb::object optimizer);

/// Returns a hook that updates parameters with `stepper` after each bucket, or `hook` itself if `stepper` is empty. The
/// hook keeps a copy of `stepper`. All copies share one Python reference, so tp_traverse visits it once. Needs the GIL.
HookPtr with_overlapped_steps(HookPtr hook, const PyRef& stepper, std::optional<double> clip_norm, bool for_torch);

}  // namespace hookline::python
