// The limit on file descriptors (RLIMIT_NOFILE), which a large group may exceed.
#pragma once

#include <cstddef>
#include <string>

namespace hookline::shm {

/// Return the number of descriptors that a group keeps, and the maximum while it is being created, when the bootstrap
/// watches the processes, too (backend/bootstrap.hpp). Each rank keeps a memory file and a pidfd of each peer.
constexpr std::size_t kept_descriptors(std::size_t ranks) noexcept { return 2 * ranks; }
constexpr std::size_t max_descriptors(std::size_t ranks) noexcept { return 3 * ranks; }

/// Raises the soft limit of this process if it leaves too few descriptors for a group of `ranks`. Throws ResourceError,
/// naming `group` and both limits, if the hard limit is too low.
void reserve_descriptors(std::size_t ranks, const std::string& group);

}  // namespace hookline::shm
