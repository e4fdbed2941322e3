// Creates a hierarchical backend from any sub-backends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/hierarchical/topology.hpp"

namespace hookline::hierarchical {

/// Creates a backend of some ranks of the group. Called by exactly these ranks, with a name that is unique.
using MakeSubBackend =
    std::function<std::shared_ptr<Backend>(const std::vector<int>& ranks, const std::string& name, Milliseconds)>;

/// Creates the sub-backends of a hierarchical group.
struct SubBackendFactory {
  MakeSubBackend intra_host;  ///< ranks of one host
  MakeSubBackend inter_host;  ///< any ranks, over the transport
};

/// Returns this rank's end of the group of all ranks of the topology. Collective: blocks until all ranks have created
/// their sub-backends. On a single host it is the intra-host backend itself.
std::shared_ptr<Backend> make_hierarchical(const Topology& topology, int rank, const SubBackendFactory& factory,
                                           Milliseconds timeout);

}  // namespace hookline::hierarchical
