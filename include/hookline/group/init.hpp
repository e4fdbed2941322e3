// From a launched process to a process group, in one call.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline {

struct InitOptions {
  std::string backend = {};            ///< none: shm on one host, layered beyond; see make_default_backend()
  std::string init_method = "env://";  ///< as rendezvous() takes it
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;
  Milliseconds timeout = kDefaultTimeout;  ///< of meeting, and of every operation that has none of its own
  std::shared_ptr<Store> store = nullptr;  ///< to meet in instead of `init_method`; rank and world_size must be given
  /// What the backend takes: shm "waiting", gloo "interface" and "address", mpi "communicator", layered "engine" and
  /// those of that engine.
  std::map<std::string, std::string> backend_options = {};
};

/// Meets the other processes of the job and returns the group of all of them. Every process calls it, for a second
/// group and after a failure again. Throws what rendezvous() and the backend throw, and InvalidArgument listing the
/// backends for a name that is none, and Unsupported for one that is not installed: these two before meeting anybody.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});

}  // namespace hookline
