// Where rank 0 of a job over several hosts is, from the variables that its launcher sets.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "store/rendezvous_plan.hpp"

namespace hookline::store {

struct ClusterMaster {
  std::string host;
  std::uint16_t port;
};

/// The first name of a list as Slurm writes it, such as "rack[1-2]node[03-07,11],other".
std::string first_host(std::string_view list);

/// For a job of srun's: the first host of the step, and a port made of the numbers of job and step, below those that a
/// system gives to clients. Nothing where Slurm's variables do not tell.
std::optional<ClusterMaster> slurm_master(const Environment& environment);

/// For a job of Open MPI 4's mpirun: the host of mpirun itself, if `rank` is not one that could see that rank 0 is
/// elsewhere. Nothing where the variables do not tell.
std::optional<ClusterMaster> open_mpi_master(const Environment& environment, int rank);

}  // namespace hookline::store
