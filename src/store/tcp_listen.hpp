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

/// Listens on a socket that is bound already and owns it from then on. Throws InvalidArgument, and leaves it to the
/// caller, where it is no TCP socket, is not bound, is connected, or has another port than `port`; 0 accepts any.
std::vector<Listener> take_over(int socket, std::uint16_t port);

}  // namespace hookline::store
