// Runs ranks as threads of the test, or as processes that it forks, and rethrows the first failure with its rank.
#pragma once

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::testing {

using RankBody = std::function<void(ProcessGroup&)>;

/// What a rank expects: as it may be a process of its own, a failure is thrown.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// How a test's ranks come to be; the name of the parameter in parameterised suites.
struct World {
  std::string name;
  /// Runs `body` on `ranks` ranks of a new group and returns when all are through. Throws std::runtime_error naming the
  /// rank of the first failure: an exception, or a failed expectation in a process.
  std::function<void(int ranks, const RankBody& body)> spawn;
  /// Whether the group compares what its ranks call, and tells all of them of one that gives up, leaves or does not
  /// come. A group that hands its calls to a library that does neither is held to everything else.
  bool watched = true;
  /// Whether it can make groups of its ranks; where not, it must say so.
  bool subgroups = true;
};

World threads_world();          ///< threads that reach into each other's tensors
World private_threads_world();  ///< threads that treat each other's memory as processes do
World shm_world();              ///< processes
World memory_engine_world();    ///< threads on the simplest engine: what all engines have in common
/// Layered groups: hosts that are one host, with the embedded backends in the place of the engine between them.
World layered_threads_world();    ///< every other rank on the second host
World layered_processes_world();  ///< the first half of the ranks on the first host, the others on the second
World layered_hosts_world();      ///< threads on three hosts, over the simplest engine

/// Processes that make their groups, or the backends of these, from a file store that they meet in.
using MakeGroup =
    std::function<std::shared_ptr<ProcessGroup>(const std::shared_ptr<Store>& store, int rank, int ranks)>;
World processes_world(const std::string& name, const MakeGroup& make);
using MakeBackend = std::function<std::shared_ptr<Backend>(const std::shared_ptr<Store>& store, int rank, int ranks)>;
World processes_world(const std::string& name, const MakeBackend& make_backend);

/// Those that the contract of process groups is tried on: every program that has its tests says which.
std::vector<World> group_worlds();

inline std::ostream& operator<<(std::ostream& out, const World& world) { return out << world.name; }

}  // namespace hookline::testing
