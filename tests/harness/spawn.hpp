// Group fixtures: run ranks as threads or as forked processes, and rethrow the first failure with its rank.
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

/// Asserts a condition on a rank. Throws, because a rank may be another process.
inline void require(bool condition, const std::string& what) {
  if (!condition) throw std::runtime_error(what);
}

/// Spawns the ranks of a group. Test suites are parameterized by it and print its name.
struct GroupFixture {
  std::string name;
  /// Runs `body` on `ranks` ranks of a new group and returns when all have finished. Throws std::runtime_error naming
  /// the rank of the first failure: an exception, or a failed expectation in a process.
  std::function<void(int ranks, const RankBody& body)> spawn;
  /// True if the group detects mismatched calls and reports ranks that fail, leave or are missing to all ranks. Other
  /// groups must pass the rest of the contract.
  bool reports_failures = true;
  /// True if the group supports subgroups; otherwise new_group() and split() must throw Unsupported.
  bool subgroups = true;
};

GroupFixture threads_fixture();           ///< threads that access each other's tensors in place
GroupFixture private_threads_fixture();   ///< threads that share only memory from allocate(), as processes do
GroupFixture shm_fixture();               ///< processes
GroupFixture memory_transport_fixture();  ///< threads over the in-process transport
/// Hierarchical groups on simulated hosts, with a local backend or the in-process transport between hosts.
GroupFixture hierarchical_threads_fixture();  ///< every other rank on the second host
GroupFixture
hierarchical_processes_fixture();           ///< the first half of the ranks on the first host, the others on the second
GroupFixture hierarchical_hosts_fixture();  ///< threads on three hosts, with the in-process transport between hosts

/// Fixtures whose ranks are processes. `make` creates the group or the backend of a rank through a file store.
using MakeGroup =
    std::function<std::shared_ptr<ProcessGroup>(const std::shared_ptr<Store>& store, int rank, int ranks)>;
GroupFixture processes_fixture(const std::string& name, const MakeGroup& make);
using MakeBackend = std::function<std::shared_ptr<Backend>(const std::shared_ptr<Store>& store, int rank, int ranks)>;
GroupFixture processes_fixture(const std::string& name, const MakeBackend& make_backend);

/// Returns the fixtures that the process group contract runs on. Each test program with the contract defines it.
std::vector<GroupFixture> group_fixtures();

inline std::ostream& operator<<(std::ostream& out, const GroupFixture& fixture) { return out << fixture.name; }

}  // namespace hookline::testing
