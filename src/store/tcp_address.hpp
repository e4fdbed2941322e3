// Socket addresses of TCP stores: resolution, formatting, keepalive and retry backoff.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include <hookline/core/deadline.hpp>

namespace hookline::store {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
  bool operator==(const SocketAddress& other) const {
    return size == other.size && std::memcmp(&storage, &other.storage, size) == 0;
  }
};

enum class Purpose { connect, listen };

/// Returns the distinct addresses of a host, in the system's order of preference. An empty name with `listen` means all
/// addresses of this machine. Throws ResourceError if the name does not resolve: immediately if it is unknown, at the
/// deadline if the name service is unavailable.
std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, Purpose purpose,
                                   Clock::time_point deadline);

/// True for loopback addresses: 127.0.0.0/8, also IPv4-mapped, and ::1.
bool is_loopback(const SocketAddress& address);

/// Enables TCP keepalive: the kernel probes a peer that is silent for `period` (at least 1 s) and closes the connection
/// within the same time again without a reply. Detects hosts that lost power or network.
void set_keepalive(int socket, Milliseconds period);

/// Returns "host:port", with brackets around a numeric IPv6 address.
std::string endpoint_name(const std::string& host, std::uint16_t port);

/// Exponential backoff between attempts: 5 ms, doubling up to 1 s, not beyond `deadline`.
class ExponentialBackoff {
 public:
  explicit ExponentialBackoff(Clock::time_point deadline) : deadline_(deadline) {}
  /// Sleeps and returns true; returns false without sleeping at the deadline. Interruptible (see InterruptScope).
  bool wait();

 private:
  Clock::time_point deadline_;
  Milliseconds next_delay_{5};
};

/// Returns the system's message for an error number, with the number.
std::string system_message(int error);

}  // namespace hookline::store
