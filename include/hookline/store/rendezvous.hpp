// Rendezvous: how the processes of a job obtain their rank and their shared store.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <hookline/store/store.hpp>

namespace hookline {

/// The identity of this process in its job, and the store that the job shares.
struct Rendezvous {
  std::shared_ptr<Store> store;
  int rank;
  int world_size;
  /// The rank among the processes of this host; -1 if unknown.
  int local_rank;
  /// The rank whose process serves the store; -1 if none or unknown.
  int server_rank = -1;
};

/// Opens the store of the job. `init_method` is as in PyTorch: "env://", "file:///path?rank=0&world_size=2" or
/// "tcp://host:port?rank=0&world_size=2", with rank and world size either in the query or in the arguments.
///
/// env:// reads, in this order: HOOKLINE_STORE (the path of a file store, or tcp://host:port of the launcher's store);
/// MASTER_ADDR and MASTER_PORT (the agent's store under torchrun, otherwise rank 0 serves); under mpirun or srun a file
/// store of the job on one host, or a TCP store served by rank 0 on several hosts if Slurm or Open MPI 4 provide its
/// address. Rank and world size come from RANK, WORLD_SIZE and LOCAL_RANK or from the launcher's variables.
///
/// Throws InvalidArgument if a variable or parameter is missing or invalid, and the errors of the store.
HOOKLINE_EXPORT Rendezvous rendezvous(const std::string& init_method = "env://", std::optional<int> rank = std::nullopt,
                                      std::optional<int> world_size = std::nullopt,
                                      Milliseconds timeout = Store::kDefaultStoreTimeout);

}  // namespace hookline
