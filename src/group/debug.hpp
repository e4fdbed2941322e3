// The decorators that HOOKLINE_DEBUG asks for.
#pragma once

#include <memory>
#include <string>

#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

/// The group with the decorators of a list such as "checked,recorded" around it, the last one outermost.
/// InvalidArgument, listing those that there are, for another name.
std::shared_ptr<ProcessGroup> decorated(std::shared_ptr<ProcessGroup> group, const std::string& list,
                                        const std::shared_ptr<Store>& store);

}  // namespace hookline::group
