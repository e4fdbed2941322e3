// The address of rank 0 in a multi-host job, from the environment variables of Slurm and Open MPI.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/rendezvous_plan.hpp"

namespace hookline::store {

struct MasterEndpoint {
  std::string host;
  std::uint16_t port;
};

/// Returns the first host of a Slurm host list such as "rack[1-2]node[03-07,11],other".
std::string first_host(std::string_view list);

/// For a job started by srun: returns the first host of the step and a port derived from the job and step ids, below
/// the ephemeral ports. Returns nullopt if Slurm's variables are missing.
std::optional<MasterEndpoint> slurm_master(const Environment& environment);

/// For a job started by mpirun of Open MPI 4: returns the host of mpirun. Returns nullopt if the variables are missing,
/// or if `rank` is 0 and runs on another host than mpirun.
std::optional<MasterEndpoint> open_mpi_master(const Environment& environment, int rank);

}  // namespace hookline::store
