// Group fixture: processes with a file store and the gloo transport on the loopback interface.
#include <cstdlib>

#include <hookline/backend/make_backend.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {

std::vector<GroupFixture> group_fixtures() {
  setenv("HOOKLINE_TRANSPORT_PATH", HOOKLINE_TRANSPORTS, 1);
  return {processes_fixture("gloo", [](const std::shared_ptr<Store>& store, int rank, int ranks) {
    return make_backend("gloo", {.store = store,
                                 .rank = rank,
                                 .size = ranks,
                                 .timeout = std::chrono::seconds(60),
                                 .options = {{"address", "127.0.0.1"}}});
  })};
}

}  // namespace hookline::testing
