// Where a group on a backend comes from: what it needs to make groups of its ranks.
#pragma once

#include <memory>
#include <vector>

#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::group {

struct GroupOrigin {
  std::shared_ptr<Store> store;   ///< for this group alone; null: failures to make a subgroup are not published
  std::vector<int> global_ranks;  ///< by rank; empty: the group's ranks are global
};

std::shared_ptr<ProcessGroup> make_group(std::shared_ptr<Backend> backend, Milliseconds timeout, GroupOrigin origin);

}  // namespace hookline::group
