// The sockets that the TCP store's server listens on.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hookline/core/deadline.hpp>

#include "core/descriptor.hpp"

namespace hookline::store {

struct Listener {
  core::Descriptor socket;
  int family;
  std::uint16_t port;
  bool loopback;  // true if only this host reaches it
};

/// Listens on every address that the host's name stands for, or on all of this machine, on one port; at least one
/// listener comes back. Throws ResourceError saying which address was refused and why.
std::vector<Listener> listen_on(const std::string& host, std::uint16_t port, bool all_interfaces,
                                Clock::time_point deadline);

}  // namespace hookline::store
