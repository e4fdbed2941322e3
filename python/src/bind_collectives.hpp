// Binds the collectives of the Python class ProcessGroup.
#pragma once

#include <nanobind/nanobind.h>

#include "py_process_group.hpp"

namespace hookline::python {

using GroupClass = nanobind::class_<ProcessGroup, PyProcessGroup>;

void bind_collectives(GroupClass& group);
/// Binds subgroups and coalescing.
void bind_subgroups(GroupClass& group);

}  // namespace hookline::python
