// Subgroups: the ranks of one host, or consecutive ranks.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// Returns the group of the ranks on this rank's host (same kernel and namespaces, as for the backend shm), or `group`
/// itself if all ranks share the host. Every rank of the group calls it.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> local_group(const std::shared_ptr<ProcessGroup>& group);

/// Splits the ranks, in order, into groups of `size` ranks and returns this rank's. Every rank of the group calls it.
/// Throws InvalidArgument if `size` does not divide the number of ranks.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> fixed_size_subgroup(const std::shared_ptr<ProcessGroup>& group, int size);

}  // namespace hookline
