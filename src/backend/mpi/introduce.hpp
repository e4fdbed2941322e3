// The first words of all ranks of a communicator: who they are.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

namespace hookline::mpi {

/// A process, for those who share its host.
struct Identity {
  std::uint64_t host = 0;  ///< of the kernel and the namespace that numbers its processes
  std::int64_t process = 0;
};

/// What all ranks say of themselves, in rank order; collective over a communicator on which nobody else sends or
/// receives. Of two ranks the lower one speaks first, so that they never connect to each other at the same moment:
/// Open MPI 4 and 5 may then take the connection that is one too many for the only one, close it, and end the job or
/// wait for ever. Throws ResourceError.
std::vector<Identity> introduce(MPI_Comm comm);

}  // namespace hookline::mpi
