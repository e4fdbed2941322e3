// The memory available on the host and within the limits of this process's control groups.
#pragma once

#include <cstdint>
#include <string>

#include <hookline/core/export.hpp>

namespace hookline::shm {

/// Returns the bytes that can be allocated without reclaiming memory of running processes. Larger allocations may
/// invoke the OOM killer; a container's limit does so even if the host has free memory. Reads /proc and /sys/fs/cgroup
/// below `root`, which tests set. Returns UINT64_MAX if nothing is known.
HOOKLINE_EXPORT std::uint64_t available_bytes(const std::string& root = "");

}  // namespace hookline::shm
