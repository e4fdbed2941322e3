// init_process_group: rendezvous and creation of the first group of a job.
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
  std::string backend = {};            ///< empty: shm on one host, else hierarchical; see make_default_backend()
  std::string init_method = "env://";  ///< a URL for rendezvous()
  std::optional<int> rank = std::nullopt;
  std::optional<int> world_size = std::nullopt;
  Milliseconds timeout = kDefaultTimeout;  ///< of the rendezvous, and the default of every operation
  std::shared_ptr<Store> store = nullptr;  ///< replaces `init_method`; requires rank and world_size
  /// Options of the backend: shm "wait_policy", gloo "interface" and "address", mpi "communicator", hierarchical
  /// "transport" and the options of that transport.
  std::map<std::string, std::string> backend_options = {};
};

/// Joins the rendezvous and returns the group of all processes of the job. Every process calls it; it may be called
/// again for another group or after a failure. Throws InvalidArgument for an unknown backend and Unsupported for one
/// that is not installed, both before the rendezvous, and the errors of rendezvous() and the backend.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> init_process_group(const InitOptions& options = {});

}  // namespace hookline
