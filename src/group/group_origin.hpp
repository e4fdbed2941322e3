// GroupOrigin: the store and global ranks that a group needs to create subgroups.
#pragma once

#include <memory>
#include <vector>

#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

struct GroupOrigin {
  std::shared_ptr<Store> store;   ///< exclusive to this group; null: failures to create subgroups are not published
  std::vector<int> global_ranks;  ///< by rank; empty: the group's ranks are global
};

std::shared_ptr<ProcessGroup> make_group(std::shared_ptr<Backend> backend, Milliseconds timeout, GroupOrigin origin);

}  // namespace hookline::group
