// The limit on file descriptors (RLIMIT_NOFILE), which a large group may exceed.
#pragma once

#include <cstddef>
#include <string>

namespace hookline::shm {

/// How many descriptors a group of so many ranks keeps, and how many it needs while it is made, when failure detection
/// watches the processes as well (backend/bootstrap.hpp). A rank keeps a memory file and a pidfd of each peer.
constexpr std::size_t kept_descriptors(std::size_t ranks) noexcept { return 2 * ranks; }
constexpr std::size_t most_descriptors(std::size_t ranks) noexcept { return 3 * ranks; }

/// Raises the soft limit of this process where it does not leave room for a group of `ranks` beside what is open now.
/// It never goes above the hard limit: throws ResourceError that names `group` and both limits where that is too low.
void reserve_descriptors(std::size_t ranks, const std::string& group);

}  // namespace hookline::shm
