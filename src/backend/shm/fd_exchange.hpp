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

/// Sends `memory` to every other rank and returns the peers by rank; this rank's own entry is empty. Descriptors travel
/// over abstract Unix sockets, whose names the ranks publish in the store. Only processes of this user, or of root,
/// receive one. Throws Unsupported, naming the ranks on other hosts or in other network or PID namespaces, or Timeout,
/// naming the ranks that did not join.
std::vector<Peer> exchange_fds(Store& store, int rank, int size, int memory, Clock::time_point deadline);

}  // namespace hookline::shm
