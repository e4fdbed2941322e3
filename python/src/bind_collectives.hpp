// The collectives of the Python class ProcessGroup.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/group/process_group.hpp>

namespace hookline::python {

void bind_collectives(nanobind::class_<ProcessGroup>& group);

}  // namespace hookline::python
