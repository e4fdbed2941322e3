// The fixtures of the process group contract that run on this machine alone.
#include "harness/spawn.hpp"

namespace hookline::testing {

std::vector<World> group_worlds() {
  return {threads_world(),         private_threads_world(),   shm_world(),          memory_engine_world(),
          layered_threads_world(), layered_processes_world(), layered_hosts_world()};
}

}  // namespace hookline::testing
