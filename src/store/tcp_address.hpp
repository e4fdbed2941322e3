// Where the TCP store's server is: names turned into socket addresses, and how messages call them.
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

/// Every address of a host, once, in the order of the system's preference; an empty name with `listen` is all addresses
/// of this machine. Throws ResourceError for a name that does not resolve: at once where the name is unknown, at the
/// deadline where the name service cannot be asked.
std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, Purpose purpose,
                                   Clock::time_point deadline);

/// True for addresses that only this host reaches: 127.0.0.0/8 and ::1, also as an IPv4-mapped IPv6 address.
bool is_loopback(const SocketAddress& address);

/// Has the kernel ask after a peer that is silent for `period` (at least a second), and end the connection within as
/// much again where no answer comes: a host that lost its power or network says nothing of itself.
void set_keepalive(int socket, Milliseconds period);

/// "host:port", with brackets around a numeric IPv6 address.
std::string endpoint_name(const std::string& host, std::uint16_t port);

/// The pauses between attempts: 5 ms, each twice as long as the one before, at most a second, never beyond `deadline`.
class Pauses {
 public:
  explicit Pauses(Clock::time_point deadline) : deadline_(deadline) {}
  /// Sleeps, unless it is interrupted; false, without sleeping, where the deadline has come.
  bool pause();

 private:
  Clock::time_point deadline_;
  Milliseconds next_{5};
};

/// What the system says to an error number, with the number.
std::string system_message(int error);

}  // namespace hookline::store
