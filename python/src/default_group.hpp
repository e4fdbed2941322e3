// The process group that is meant where none is given.
#pragma once

#include <memory>

#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>

#include <hookline/group/process_group.hpp>

namespace hookline::python {

/// The group given, or the one that init_process_group made last; InvalidArgument where there is none. Needs the GIL.
inline std::shared_ptr<ProcessGroup> group_or_default(std::shared_ptr<ProcessGroup> group) {
  if (group) return group;
  const nanobind::object made = nanobind::module_::import_("hookline._core").attr("default_group")();
  return nanobind::cast<std::shared_ptr<ProcessGroup>>(made);
}

}  // namespace hookline::python
