// Who shares a host is found out by one sum, which every group has.
#include <hookline/group/subgroups.hpp>

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/host.hpp"
#include "core/hash.hpp"

namespace hookline {

std::shared_ptr<ProcessGroup> host_group(const std::shared_ptr<ProcessGroup>& group) {
  if (!group) throw InvalidArgument("host_group: there is no group");
  if (group->size() == 1) return group;
  const Tensor sum = Tensor::zeros({group->size()}, DType::i64);  // owns its memory, as Ctrl-C ends the wait alone
  auto* const hosts = sum.data<std::int64_t>();
  auto* const end = hosts + group->size();
  const int rank = group->rank();
  hosts[rank] = static_cast<std::int64_t>(core::hash_of(backend::host_identity()));
  group->allreduce(sum)->wait();
  if (std::count(hosts, end, hosts[rank]) == group->size()) return group;
  return group->split(static_cast<int>(std::find(hosts, end, hosts[rank]) - hosts), rank);
}

std::shared_ptr<ProcessGroup> group_of_size(const std::shared_ptr<ProcessGroup>& group, int size) {
  if (!group) throw InvalidArgument("group_of_size: there is no group");
  if (size < 1 || group->size() % size != 0) {
    throw InvalidArgument(
        fmt::format("a group size of {}: it must be one that divides the {} ranks of the group", size, group->size()));
  }
  return size == group->size() ? group : group->split(group->rank() / size, group->rank());
}

}  // namespace hookline
