// Who shares a host is found out by one sum, which every group has.
#include <hookline/group/subgroups.hpp>

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

// A host is a running kernel; where that does not say who it is, its name must do.
std::int64_t host_number() {
  std::string host;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), host);
  if (host.empty()) {
    std::array<char, 256> name = {};
    if (gethostname(name.data(), name.size() - 1) == 0) host = name.data();
  }
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : host) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return static_cast<std::int64_t>(hash);
}

}  // namespace

std::shared_ptr<ProcessGroup> host_group(const std::shared_ptr<ProcessGroup>& group) {
  if (!group) throw InvalidArgument("host_group: there is no group");
  if (group->size() == 1) return group;
  std::vector<std::int64_t> hosts(static_cast<std::size_t>(group->size()));
  const auto rank = static_cast<std::size_t>(group->rank());
  hosts[rank] = host_number();
  group->allreduce(Tensor::borrow(hosts))->wait();
  const auto first = std::find(hosts.begin(), hosts.end(), hosts[rank]);
  if (std::count(hosts.begin(), hosts.end(), hosts[rank]) == group->size()) return group;
  return group->split(static_cast<int>(first - hosts.begin()), group->rank());
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
