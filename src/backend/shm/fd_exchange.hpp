// Exchanges the descriptors of shared memory between the processes of a group.
#pragma once

#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/store/store.hpp>

#include "core/file_descriptor.hpp"

namespace hookline::shm {

using core::FileDescriptor;

struct Peer {
  FileDescriptor memory;
  FileDescriptor process;  ///< a pidfd
};

/// Gives every other rank `memory` and returns theirs, by rank (this rank's own entry is empty). Descriptors travel
/// over abstract unix sockets, whose names the ranks tell each other in the store; only processes of this user, or
/// root, get one. Throws Unsupported listing the ranks of another host, or network or PID namespace, Timeout naming
/// those that did not join.
std::vector<Peer> exchange_fds(Store& store, int rank, int size, int memory, Clock::time_point deadline);

}  // namespace hookline::shm
