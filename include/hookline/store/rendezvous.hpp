// How the processes of a job find their store and learn who they are.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <hookline/store/store.hpp>

namespace hookline {

/// Who this process is among those of its job, and the store that they share.
struct Rendezvous {
  std::shared_ptr<Store> store;
  int rank;
  int world_size;
  /// The rank among the processes of this host; -1 where nothing tells.
  int local_rank;
  /// The rank whose process serves the store; -1 where none does, or where nothing tells.
  int server_rank = -1;
};

/// `init_method` as in PyTorch: "env://", "file:///path?rank=0&world_size=2" or "tcp://host:port?rank=0&world_size=2";
/// rank and size stand in the query or in the arguments, not in both. env:// reads, in this order: HOOKLINE_STORE (the
/// path of a file store, or tcp://host:port of the launcher's store), MASTER_ADDR and MASTER_PORT (under torchrun the
/// agent's store, else rank 0 serves), and under mpirun or srun a file store of that job, or on several hosts a TCP
/// store that rank 0 serves where Slurm or Open MPI 4 tell where it is. Rank and size come from RANK, WORLD_SIZE and
/// LOCAL_RANK or from the launcher's own variables. A missing one is InvalidArgument naming it; what the store throws
/// is passed on.
HOOKLINE_EXPORT Rendezvous rendezvous(const std::string& init_method = "env://", std::optional<int> rank = std::nullopt,
                                      std::optional<int> world_size = std::nullopt,
                                      Milliseconds timeout = Store::kDefaultStoreTimeout);

}  // namespace hookline
