// Debug wrappers selected by HOOKLINE_DEBUG.
#pragma once

#include <memory>
#include <string>

#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

/// Wraps `group` in the debug wrappers of a comma-separated list such as "collectives,flight_recorder"; the last one is
/// outermost. Throws InvalidArgument listing the known names for an unknown one.
std::shared_ptr<ProcessGroup> with_debug_wrappers(std::shared_ptr<ProcessGroup> group, const std::string& list,
                                                  const std::shared_ptr<Store>& store);

}  // namespace hookline::group
