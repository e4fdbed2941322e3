// The identity of a host: the boot id of its kernel, and the network and PID namespaces of the process.
#include "backend/host.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstring>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "core/file_descriptor.hpp"

namespace hookline::backend {

std::string host_identity() {
  const core::FileDescriptor boot_id(::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!boot_id && (errno == EMFILE || errno == ENFILE || errno == ENOMEM)) {
    throw ResourceError(fmt::format("cannot read the boot id of this host: {}", std::strerror(errno)));
  }
  std::array<char, 256> text = {};
  if (!boot_id || ::read(boot_id.get(), text.data(), text.size() - 1) <= 0) {
    gethostname(text.data(), text.size() - 1);  // a sandbox may hide the boot id
  }
  std::string identity(text.data(), std::strcspn(text.data(), "\n"));
  for (const char* const name : {"net", "pid"}) {
    char space[PATH_MAX] = {};
    if (readlink(fmt::format("/proc/self/ns/{}", name).c_str(), space, sizeof space - 1) < 0) {
      throw ResourceError(fmt::format("cannot read the {} namespace of this process: {}", name, std::strerror(errno)));
    }
    identity += fmt::format(" {}", space);
  }
  return identity;
}

}  // namespace hookline::backend
