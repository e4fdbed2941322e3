// Group fixture: simulated hosts, which are the network namespaces listed in HOOKLINE_TEST_HOSTS.
#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <hookline/backend/make_backend.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

std::vector<std::string> host_names() {
  const char* const names = std::getenv("HOOKLINE_TEST_HOSTS");
  if (!names) throw std::runtime_error("HOOKLINE_TEST_HOSTS must list network namespaces, separated by commas");
  std::vector<std::string> hosts;
  std::istringstream text(names);
  for (std::string name; std::getline(text, name, ',');) hosts.push_back(name);
  return hosts;
}

void enter_namespace(const std::string& host) {
  const int namespace_fd = open(("/run/netns/" + host).c_str(), O_RDONLY | O_CLOEXEC);
  if (namespace_fd < 0 || setns(namespace_fd, CLONE_NEWNET) != 0)
    throw std::runtime_error("cannot enter the namespace " + host);
  close(namespace_fd);
}

}  // namespace

std::vector<GroupFixture> group_fixtures() {
  return {processes_fixture("hosts", [](const std::shared_ptr<Store>& store, int rank, int ranks) {
    const std::vector<std::string> hosts = host_names();
    enter_namespace(hosts[static_cast<std::size_t>(rank) % hosts.size()]);
    return make_backend("hierarchical", {.store = store, .rank = rank, .size = ranks, .timeout = Milliseconds(30'000)});
  })};
}

}  // namespace hookline::testing
