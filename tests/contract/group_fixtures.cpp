// The fixtures of the process group contract that run on this machine alone.
#include "harness/spawn.hpp"

namespace hookline::testing {

std::vector<GroupFixture> group_fixtures() {
  return {threads_fixture(),           private_threads_fixture(),      shm_fixture(),
          memory_transport_fixture(),  hierarchical_threads_fixture(), hierarchical_processes_fixture(),
          hierarchical_hosts_fixture()};
}

}  // namespace hookline::testing
