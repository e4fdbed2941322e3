// Exchanges host and process ids over a communicator, before any other message.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace hookline::mpi {

/// The host and process id of a rank.
struct Identity {
  std::uint64_t host_hash = 0;  ///< hash of the kernel's boot id and the PID namespace
  std::int64_t pid = 0;
};

/// Returns the identities of all ranks, in rank order. Collective over a communicator with no other traffic. Of two
/// ranks the lower one sends first, so that they never connect to each other simultaneously: Open MPI 4 and 5 may then
/// close the wrong one of the two connections and abort the job or hang. Throws ResourceError.
std::vector<Identity> exchange_identities(MPI_Comm comm);

}  // namespace hookline::mpi
