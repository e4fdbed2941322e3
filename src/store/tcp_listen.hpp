// The sockets that the TCP store's server listens on.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <hookline/core/deadline.hpp>

namespace hookline::store {

/// A socket that is closed when nobody has taken it.
class OwnedSocket {
 public:
  explicit OwnedSocket(int socket) : socket_(socket) {}
  OwnedSocket(OwnedSocket&& other) noexcept : socket_(other.release()) {}
  OwnedSocket& operator=(OwnedSocket&&) = delete;
  ~OwnedSocket();

  int get() const { return socket_; }
  int release() { return std::exchange(socket_, -1); }

 private:
  int socket_;
};

struct Listener {
  OwnedSocket socket;
  int family;
  std::uint16_t port;
};

/// Listens on every address that the host's name stands for, or on all of this machine, on one port; at least one
/// listener comes back. Throws ResourceError saying which address was refused and why.
std::vector<Listener> listen_on(const std::string& host, std::uint16_t port, bool all_interfaces,
                                Clock::time_point deadline);

}  // namespace hookline::store
