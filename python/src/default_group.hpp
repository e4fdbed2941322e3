// The process group that is meant where none is given.
#pragma once

#include <memory>

#include <hookline/group/process_group.hpp>

namespace hookline::python {

/// The group given, or the one that init_process_group made last; InvalidArgument where there is none. Needs the GIL.
std::shared_ptr<ProcessGroup> group_or_default(std::shared_ptr<ProcessGroup> group);

}  // namespace hookline::python
