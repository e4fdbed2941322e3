// Making a layered backend of whatever its parts are.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>

#include "backend/layered/topology.hpp"

namespace hookline::layered {

/// Makes a backend of some ranks of the whole group, called by those and only those, under a name that is new.
using MakePart =
    std::function<std::shared_ptr<Backend>(const std::vector<int>& ranks, const std::string& name, Milliseconds)>;

/// How the parts are made.
struct Makers {
  MakePart inside;   ///< ranks of one host
  MakePart between;  ///< any ranks, through the engine
};

/// This rank's end of the group of all ranks of the topology; every rank calls it, and it returns when all ranks have
/// made their parts. On one host it is what `inside` makes.
std::shared_ptr<Backend> make_layered(const Topology& topology, int rank, const Makers& makers, Milliseconds timeout);

}  // namespace hookline::layered
