// Whether MPI is what started this process.
#pragma once

namespace hookline::backend {

/// Whether the mpirun of the MPI that the engine mpi is built with started this process, as one of `size`. False where
/// that engine is not installed, and for srun: what it tells its processes does not say whether an MPI understands it,
/// and one that does not would end the process or take it for the only one.
bool is_started_by_mpirun(int size);

}  // namespace hookline::backend
