// Reads /proc/meminfo and the memory limits of all control groups from this process's own up to the root.
#include "backend/shm/memory_limit.hpp"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string_view>

namespace hookline::shm {
namespace {

// Returns nullopt if the file does not exist or contains "max".
std::optional<std::uint64_t> read_number(const std::string& path) {
  std::ifstream file(path);
  if (std::uint64_t value = 0; file >> value) return value;
  return std::nullopt;
}

// Returns the value of a line such as "inactive_file 4096" or "MemAvailable: 100 kB".
std::optional<std::uint64_t> read_entry(const std::string& path, std::string_view wanted) {
  std::ifstream file(path);
  std::string key;
  for (std::uint64_t value = 0; file >> key >> value; file.ignore(64, '\n')) {
    if (key == wanted) return value;
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  ///< inactive file pages of the group
};
constexpr CgroupFiles kCgroupV1 = {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"};
constexpr CgroupFiles kCgroupV2 = {"/memory.max", "/memory.current", "inactive_file"};

std::uint64_t available_in(const std::string& group, const CgroupFiles& names) {
  const auto limit = read_number(group + names.limit);
  const auto usage = read_number(group + names.usage);
  if (!limit || !usage) return UINT64_MAX;
  const std::uint64_t reclaimable = read_entry(group + "/memory.stat", names.reclaimable).value_or(0);
  const std::uint64_t used = *usage - std::min(*usage, reclaimable);
  return *limit - std::min(*limit, used);
}

// Returns the minimum over a control group and its ancestors, because a limit applies to all groups below it. In a
// container, `path` may name groups that are not visible; these do not count.
std::uint64_t available_in_ancestors(const std::string& mount, std::string path, const CgroupFiles& names) {
  std::uint64_t left = available_in(mount, names);
  while (path.size() > 1) {
    left = std::min(left, available_in(mount + path, names));
    path.resize(path.rfind('/'));
  }
  return left;
}

}  // namespace

std::uint64_t available_bytes(const std::string& root) {
  std::uint64_t left = UINT64_MAX;
  if (const auto kilobytes = read_entry(root + "/proc/meminfo", "MemAvailable:")) left = *kilobytes * 1024;

  // Lines such as "0::/a/b" (version 2) and "4:memory:/a/b" (version 1).
  std::ifstream groups(root + "/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string path = line.substr(second + 1);
    line[second] = ',';  // so that each controller is between commas
    const std::string_view controllers = std::string_view(line).substr(first, second - first + 1);
    if (controllers.size() == 2) {
      left = std::min(left, available_in_ancestors(root + "/sys/fs/cgroup", path, kCgroupV2));
    } else if (controllers.find(":memory,") != std::string_view::npos ||
               controllers.find(",memory,") != std::string_view::npos) {
      left = std::min(left, available_in_ancestors(root + "/sys/fs/cgroup/memory", path, kCgroupV1));
    }
  }
  return left;
}

}  // namespace hookline::shm
