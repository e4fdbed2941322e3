// Group fixture: processes with a file store and the gloo transport on the loopback interface.
#include <cstdlib>

#include <hookline/backend/make_backend.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {

std::vector<World> group_worlds() {
  setenv("HOOKLINE_ENGINE_PATH", HOOKLINE_ENGINES, 1);
  return {processes_world("gloo", [](const std::shared_ptr<Store>& store, int rank, int ranks) {
    return make_backend("gloo", {.store = store,
                                 .rank = rank,
                                 .size = ranks,
                                 .timeout = std::chrono::seconds(60),
                                 .options = {{"address", "127.0.0.1"}}});
  })};
}

}  // namespace hookline::testing
