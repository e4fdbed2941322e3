// Binding and listening.
#include "store/tcp_listen.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>

#include <hookline/core/error.hpp>

#include "store/store_error.hpp"
#include "store/tcp_address.hpp"

namespace hookline::store {
namespace {

std::uint16_t port_of(const SocketAddress& address) {
  if (address.family() == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_port);
  }
  return ntohs(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port);
}

void set_port(SocketAddress& address, std::uint16_t port) {
  if (address.family() == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  }
}

// Adds a listener and returns 0, or returns the error number.
int listen_at(const SocketAddress& address, std::vector<Listener>& listeners) {
  core::FileDescriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return errno;
  const int on = 1;
  // Allows a restart while connections of the previous server are in TIME_WAIT.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.family() == AF_INET6) ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
  if (::bind(socket.get(), address.get(), address.size) != 0) return errno;
  if (::listen(socket.get(), SOMAXCONN) != 0) return errno;
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0) return errno;
  listeners.push_back({std::move(socket), address.family(), port_of(bound), is_loopback(bound)});
  return 0;
}

std::string advice(int error) {
  if (error == EADDRINUSE) return "another program uses this port. Choose another one.";
  if (error == EADDRNOTAVAIL) {
    return "this is not an address of this machine. Use a local address, or listen on all interfaces.";
  }
  if (error == EACCES) return "ports below 1024 require privileges. Choose a higher port.";
  return "Check the address family and the file descriptor limit (ulimit -n).";
}

}  // namespace

std::vector<Listener> listen_on(const std::string& host, std::uint16_t port, bool all_interfaces,
                                Clock::time_point deadline) {
  // A free port of the first address may be in use on the second one, so other ports are tried.
  constexpr int kAttempts = 16;
  int error = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    std::vector<Listener> listeners;
    error = 0;
    for (SocketAddress address : resolve(all_interfaces ? "" : host, port, Purpose::listen, deadline)) {
      if (!listeners.empty()) set_port(address, listeners.front().port);
      const int result = listen_at(address, listeners);
      if (result == 0) continue;
      error = result;
      if (error == EADDRINUSE) break;
    }
    // An unsupported address family (usually IPv6) is ignored if another address works.
    if (error != EADDRINUSE && !listeners.empty()) return listeners;
    if (error != EADDRINUSE || port != 0) break;
  }
  throw NetworkRefused(
      fmt::format("The server socket has failed to listen on any local network address. TCPStore({}): {}. {}",
                  endpoint_name(all_interfaces ? "*" : host, port), system_message(error), advice(error)));
}

std::vector<Listener> listen_on_fd(int socket, std::uint16_t port) {
  const auto reject = [socket](const std::string& reason) {
    throw InvalidArgument(
        fmt::format("TCPStore: master_listen_fd {}: {}. Pass a bound, unconnected TCP socket.", socket, reason));
  };
  int type = 0;
  socklen_t size = sizeof(type);
  SocketAddress bound;
  bound.size = sizeof(bound.storage);
  if (::getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &size) != 0 || type != SOCK_STREAM ||
      ::getsockname(socket, reinterpret_cast<sockaddr*>(&bound.storage), &bound.size) != 0 ||
      (bound.family() != AF_INET && bound.family() != AF_INET6)) {
    reject("it is not a TCP socket");
  }
  const std::uint16_t bound_port = port_of(bound);
  if (bound_port == 0) reject("it is not bound to a port");
  if (port != 0 && bound_port != port)
    reject(fmt::format("it is bound to port {}, expected to be bound to port {}", bound_port, port));
  SocketAddress peer;
  peer.size = sizeof(peer.storage);
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&peer.storage), &peer.size) == 0) reject("it is connected");
  if (::listen(socket, SOMAXCONN) != 0) reject(system_message(errno));
  std::vector<Listener> listeners;
  listeners.push_back({core::FileDescriptor(socket), bound.family(), bound_port, is_loopback(bound)});
  return listeners;
}

}  // namespace hookline::store
