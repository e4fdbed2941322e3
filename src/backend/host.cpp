// The identity of a host: the kernel that runs, and the namespaces that must be the same.
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
  std::string identity;
  std::ifstream boot_id("/proc/sys/kernel/random/boot_id");
  if (!boot_id && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    throw ResourceError(fmt::format("cannot read the identity of this host: {}", std::strerror(errno)));
  }
  std::getline(boot_id, identity);
  if (identity.empty()) {  // a sandbox may hide it; then the host's name must do
    std::array<char, 256> name = {};
    if (gethostname(name.data(), name.size() - 1) == 0) identity = name.data();
  }
  for (const char* const name : {"net", "pid"}) {
    char space[PATH_MAX] = {};
    if (readlink(fmt::format("/proc/self/ns/{}", name).c_str(), space, sizeof space - 1) < 0) {
      throw ResourceError(fmt::format("cannot read this process's {} namespace: {}", name, std::strerror(errno)));
    }
    identity += fmt::format(" {}", space);
  }
  return identity;
}

}  // namespace hookline::backend
