// Chooses the local address from options, the environment, or the kernel's routing table.
#include "backend/gloo/local_address.hpp"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/error.hpp>

namespace hookline::gloo_transport {
namespace {

std::string numeric_address(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed ? "" : text.data();
}

using AddrInfoPtr = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddrInfoPtr resolve(const std::string& host, int type, std::string& reason) {
  addrinfo hints = {};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), type == SOCK_DGRAM ? "9" : nullptr, &hints, &found);
  if (failed) reason = gai_strerror(failed);
  return {failed ? nullptr : found, &freeaddrinfo};
}

// Tries `bind_or_connect` on each address of `host`; returns the local end of the first socket that succeeds.
template <class Use>
std::optional<std::string> local_endpoint(const std::string& host, int type, Use bind_or_connect, std::string& reason) {
  const AddrInfoPtr all = resolve(host, type, reason);
  for (const addrinfo* a = all.get(); a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    sockaddr_storage own = {};
    socklen_t length = sizeof own;
    const bool succeeded = bind_or_connect(fd, a->ai_addr, a->ai_addrlen) == 0 &&
                           getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
    if (!succeeded) reason = std::strerror(errno);
    close(fd);
    if (succeeded) return numeric_address(reinterpret_cast<const sockaddr*>(&own), length);
  }
  return std::nullopt;
}

// Returns the first address of `host` that this host can bind.
std::optional<std::string> bindable_address(const std::string& host, std::string& reason) {
  return local_endpoint(host, SOCK_STREAM, bind, reason);
}

// Returns the source address of packets to `host`. Connecting a UDP socket asks the kernel without sending anything.
std::optional<std::string> source_address_for(const std::string& host, std::string& reason) {
  return local_endpoint(host, SOCK_DGRAM, connect, reason);
}

std::string interface_address(const std::string& name, const std::string& requested_by) {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) throw ResourceError(fmt::format("gloo: getifaddrs failed: {}", std::strerror(errno)));
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(all, &freeifaddrs);
  std::set<std::string> names;
  std::string found;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* i = all; i; i = i->ifa_next) {
      if (!i->ifa_addr || i->ifa_addr->sa_family != family) continue;
      names.insert(i->ifa_name);
      if (found.empty() && name == i->ifa_name) {
        found = numeric_address(i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      }
    }
  }
  if (!found.empty()) return found;
  throw InvalidArgument(fmt::format("gloo: {} names an unknown interface: expected one of {}, got '{}'", requested_by,
                                    fmt::join(names, ", "), name));
}

// True if `text` is a numeric address other than loopback.
bool is_routable(const std::string& text) {
  in6_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) == 1) return !text.starts_with("127.");
  return inet_pton(AF_INET6, text.c_str(), &address) == 1 && !IN6_IS_ADDR_LOOPBACK(&address);
}

const char* env_interfaces() {
  const char* const names = std::getenv("GLOO_SOCKET_IFNAME");
  return names && *names ? names : nullptr;
}

std::string default_address(const std::string& route_hint) {
  std::string reason;
  const char* const master = std::getenv("MASTER_ADDR");
  const std::string target = !route_hint.empty() ? route_hint : master ? master : "";
  if (!target.empty()) {
    if (auto address = source_address_for(target, reason)) return *address;
    throw InvalidArgument(
        fmt::format("gloo: no route to '{}': {}. Set the option \"interface\" or GLOO_SOCKET_IFNAME.", target, reason));
  }
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) {
    if (auto address = bindable_address(host.data(), reason)) return *address;
  }
  return "127.0.0.1";
}

}  // namespace

std::string local_address(const std::map<std::string, std::string>& options, const std::string& route_hint) {
  for (const auto& [name, value] : options) {
    if (name != "interface" && name != "address") {
      throw InvalidArgument(fmt::format("gloo: unknown option: expected \"interface\" or \"address\", got '{}'", name));
    }
  }
  if (const auto it = options.find("address"); it != options.end()) {
    std::string reason;
    if (auto address = bindable_address(it->second, reason)) return *address;
    throw InvalidArgument(
        fmt::format("gloo: the option \"address\" is not an address of this host: got '{}': {}", it->second, reason));
  }
  if (const auto it = options.find("interface"); it != options.end()) {
    return interface_address(it->second, "the option \"interface\"");
  }
  if (const char* const names = env_interfaces()) {
    const std::string list = names;  // PyTorch accepts a list; Hookline uses its first interface
    return interface_address(list.substr(0, list.find(',')), "GLOO_SOCKET_IFNAME");
  }
  return default_address(route_hint);
}

bool has_explicit_address(const std::map<std::string, std::string>& options) {
  return !options.empty() || env_interfaces();
}

std::string reachable_address(const std::string& own, const std::vector<std::string>& all) {
  const auto other = std::find_if(all.begin(), all.end(), is_routable);
  if (is_routable(own) || other == all.end()) return own;
  std::string reason;
  return source_address_for(*other, reason).value_or(own);
}

}  // namespace hookline::gloo_transport
