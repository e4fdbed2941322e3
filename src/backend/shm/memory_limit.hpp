// The memory available on the host and within the limits of this process's control groups.
#pragma once

#include <cstdint>
#include <string>

#include <hookline/core/export.hpp>

namespace hookline::shm {

/// What may be allocated without pushing somebody out. Taking more than that may end in the OOM killer, which is what a
/// container's limit does even where the host has plenty. Reads /proc and /sys/fs/cgroup below `root`, where tests have
/// others; the largest number where nothing is known.
HOOKLINE_EXPORT std::uint64_t available_bytes(const std::string& root = "");

}  // namespace hookline::shm
