// Listening sockets of the TCP store server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <hookline/core/deadline.hpp>

#include "core/file_descriptor.hpp"

namespace hookline::store {

struct Listener {
  core::FileDescriptor socket;
  int family;
  std::uint16_t port;
  bool loopback;  // true if bound to a loopback address
};

/// Listens on every address of `host`, or of this machine, on one port. Returns at least one listener. Throws
/// ResourceError if no address can be bound.
std::vector<Listener> listen_on(const std::string& host, std::uint16_t port, bool all_interfaces,
                                Clock::time_point deadline);

/// Listens on a bound socket and takes ownership of it. Throws InvalidArgument, without taking ownership, if it is not
/// a bound unconnected TCP socket, or not bound to `port` (0 accepts any port).
std::vector<Listener> listen_on_fd(int socket, std::uint16_t port);

}  // namespace hookline::store
