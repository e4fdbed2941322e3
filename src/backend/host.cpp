// The identity of a host: the kernel that runs, and the network namespace.
#include "backend/host.hpp"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <fstream>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::backend {

std::string host_identity() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  if (boot.empty()) {  // a sandbox may hide it; then the host's name must do
    std::array<char, 256> name = {};
    if (gethostname(name.data(), name.size() - 1) == 0) boot = name.data();
  }
  char space[PATH_MAX] = {};
  if (readlink("/proc/self/ns/net", space, sizeof space - 1) < 0) {
    throw ResourceError(fmt::format("cannot read this process's network namespace: {}", std::strerror(errno)));
  }
  return boot + " " + space;
}

}  // namespace hookline::backend
