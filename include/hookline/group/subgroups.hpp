// Parts of a group: the ranks of a host, or so many ranks one behind the other.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// The ranks on this one's host (the same kernel and the same namespaces, as for the backend shm); the group itself
/// where all are. Every rank of the group calls it.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> host_group(const std::shared_ptr<ProcessGroup>& group);

/// This rank's group where the ranks are cut, in order, into groups of one size. Every rank of the group calls it.
/// InvalidArgument where the size does not divide the number of ranks.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> group_of_size(const std::shared_ptr<ProcessGroup>& group, int size);

}  // namespace hookline
