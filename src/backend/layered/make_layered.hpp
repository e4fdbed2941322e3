// Creates a hierarchical backend from any sub-backends.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/layered/topology.hpp"

namespace hookline::layered {

/// Creates a backend of some ranks of the group. Called by exactly these ranks, with a name that is unique.
using MakePart =
    std::function<std::shared_ptr<Backend>(const std::vector<int>& ranks, const std::string& name, Milliseconds)>;

/// Creates the sub-backends of a hierarchical group.
struct Makers {
  MakePart inside;   ///< ranks of one host
  MakePart between;  ///< any ranks, over the transport
};

/// Returns this rank's end of the group of all ranks of the topology. Collective: blocks until all ranks have created
/// their sub-backends. On a single host it is the intra-host backend itself.
std::shared_ptr<Backend> make_layered(const Topology& topology, int rank, const Makers& makers, Milliseconds timeout);

}  // namespace hookline::layered
