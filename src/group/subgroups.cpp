// Subgroups by host and by size. Hosts are found with one allreduce, which every group supports.
#include <hookline/group/subgroups.hpp>

#include <algorithm>
#include <cstdint>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/host.hpp"
#include "core/hash.hpp"

namespace hookline {

std::shared_ptr<ProcessGroup> local_group(const std::shared_ptr<ProcessGroup>& group) {
  if (!group) throw InvalidArgument("local_group: group must not be null");
  if (group->size() == 1) return group;
  const Tensor sum = Tensor::zeros({group->size()}, DType::i64);  // owns its memory: Ctrl-C ends only the wait
  auto* const hosts = sum.data<std::int64_t>();
  auto* const end = hosts + group->size();
  const int rank = group->rank();
  hosts[rank] = static_cast<std::int64_t>(core::hash_bytes(backend::host_identity()));
  group->allreduce(sum)->wait();
  if (std::count(hosts, end, hosts[rank]) == group->size()) return group;
  return group->split(static_cast<int>(std::find(hosts, end, hosts[rank]) - hosts), rank);
}

std::shared_ptr<ProcessGroup> fixed_size_subgroup(const std::shared_ptr<ProcessGroup>& group, int size) {
  if (!group) throw InvalidArgument("fixed_size_subgroup: group must not be null");
  if (size < 1 || group->size() % size != 0) {
    throw InvalidArgument(
        fmt::format("fixed_size_subgroup on rank {} of {}: expected a size that divides the {} ranks, got {}",
                    group->rank(), group->size(), group->size(), size));
  }
  return size == group->size() ? group : group->split(group->rank() / size, group->rank());
}

}  // namespace hookline
