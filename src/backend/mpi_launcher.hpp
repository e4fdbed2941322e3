// Detects a launch by mpirun.
#pragma once

namespace hookline::backend {

/// True if this process is one of `size` ranks started by the mpirun of the MPI that the transport mpi was built with.
/// False if that transport is not installed. False under srun: its variables do not tell whether this MPI supports
/// srun, and an MPI that does not would exit or start as a single process.
bool is_started_by_mpirun(int size);

}  // namespace hookline::backend
