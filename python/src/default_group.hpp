// The default process group.
#pragma once

#include <memory>

#include <hookline/group/process_group.hpp>

namespace hookline::python {

/// Returns `group`, or the default group if it is null. Throws InvalidArgument if there is none. Needs the GIL.
std::shared_ptr<ProcessGroup> group_or_default(std::shared_ptr<ProcessGroup> group);

}  // namespace hookline::python
