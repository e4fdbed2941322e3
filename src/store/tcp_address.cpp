// Address resolution and socket options.
#include "store/tcp_address.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/tcp.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>
#include <thread>

#include <hookline/core/interrupt.hpp>

#include "store/store_error.hpp"

namespace hookline::store {

std::vector<SocketAddress> resolve(const std::string& host, std::uint16_t port, Purpose purpose,
                                   Clock::time_point deadline) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (purpose == Purpose::listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const char* name = host.empty() ? nullptr : host.c_str();
  ExponentialBackoff backoff(deadline);
  int result = 0;
  do {
    result = ::getaddrinfo(name, service.c_str(), &hints, &found);
  } while (result == EAI_AGAIN && backoff.wait());
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  if (result != 0) {
    throw NetworkRefused(
        fmt::format("TCPStore: the host name \"{}\" does not resolve: {}. Use a name that this machine "
                    "knows or a numeric address.",
                    host, result == EAI_SYSTEM ? system_message(errno) : ::gai_strerror(result)));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* next = found; next != nullptr; next = next->ai_next) {
    SocketAddress address;
    std::memcpy(&address.storage, next->ai_addr, next->ai_addrlen);
    address.size = next->ai_addrlen;
    // A name may resolve to an address twice (two lines in /etc/hosts), which could not be bound twice.
    if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) addresses.push_back(address);
  }
  return addresses;
}

bool is_loopback(const SocketAddress& address) {
  constexpr std::uint32_t kNetwork = 127;
  if (address.family() == AF_INET) {
    const auto* ipv4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    return ntohl(ipv4->sin_addr.s_addr) >> 24U == kNetwork;
  }
  if (address.family() != AF_INET6) return false;
  const in6_addr& ipv6 = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
  if (IN6_IS_ADDR_V4MAPPED(&ipv6)) return ipv6.s6_addr[12] == kNetwork;
  return IN6_IS_ADDR_LOOPBACK(&ipv6);
}

void set_keepalive(int socket, Milliseconds period) {
  constexpr int kProbes = 4;
  constexpr std::int64_t kMaxSeconds = 32767;  // Linux's limit
  const auto seconds = static_cast<int>(std::clamp<std::int64_t>(period.count() / 1000, 1, kMaxSeconds));
  const int interval = std::max(1, seconds / kProbes);
  const unsigned int user_timeout = 2000U * static_cast<unsigned int>(seconds);
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  ::setsockopt(socket, IPPROTO_TCP, TCP_KEEPCNT, &kProbes, sizeof(kProbes));
  ::setsockopt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_timeout,
               sizeof(user_timeout));  // covers unacknowledged data
}

std::string endpoint_name(const std::string& host, std::uint16_t port) {
  const bool brackets = host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(brackets ? "[{}]:{}" : "{}:{}"), host, port);
}

bool ExponentialBackoff::wait() {
  if (time_left(deadline_) == Milliseconds(0)) return false;
  const Clock::time_point end = std::min(deadline_, deadline_after(next_delay_));
  for (Milliseconds left = time_left(end); left > Milliseconds(0); left = time_left(end)) {
    check_interrupt();
    std::this_thread::sleep_for(std::min(left, kInterruptPeriod));
  }
  next_delay_ = std::min<Milliseconds>(next_delay_ * 2, std::chrono::seconds(1));
  return true;
}

std::string system_message(int error) {
  return fmt::format("{} (errno {})", std::generic_category().message(error), error);
}

}  // namespace hookline::store
