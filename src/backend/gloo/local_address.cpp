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

namespace hookline::gloo_engine {
namespace {

std::string in_numbers(const sockaddr* address, socklen_t length) {
  std::array<char, NI_MAXHOST> text{};
  const int failed = getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed ? "" : text.data();
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const std::string& host, int type, std::string& why) {
  addrinfo hints = {};
  hints.ai_socktype = type;
  addrinfo* found = nullptr;
  const int failed = getaddrinfo(host.c_str(), type == SOCK_DGRAM ? "9" : nullptr, &hints, &found);
  if (failed) why = gai_strerror(failed);
  return {failed ? nullptr : found, &freeaddrinfo};
}

// Tries `use` (bind or connect) on each address of `host`; returns the local end of the first socket that succeeds.
template <class Use>
std::optional<std::string> own_end(const std::string& host, int type, Use use, std::string& why) {
  const Addresses all = resolve(host, type, why);
  for (const addrinfo* a = all.get(); a; a = a->ai_next) {
    const int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
    if (fd < 0) continue;
    sockaddr_storage own = {};
    socklen_t length = sizeof own;
    const bool used =
        use(fd, a->ai_addr, a->ai_addrlen) == 0 && getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
    if (!used) why = std::strerror(errno);
    close(fd);
    if (used) return in_numbers(reinterpret_cast<const sockaddr*>(&own), length);
  }
  return std::nullopt;
}

// Returns the first address of `host` that this host can bind.
std::optional<std::string> own_address(const std::string& host, std::string& why) {
  return own_end(host, SOCK_STREAM, bind, why);
}

// Returns the source address of packets to `host`. Connecting a UDP socket asks the kernel without sending anything.
std::optional<std::string> address_towards(const std::string& host, std::string& why) {
  return own_end(host, SOCK_DGRAM, connect, why);
}

std::string address_of_interface(const std::string& name, const std::string& asked_by) {
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
        found = in_numbers(i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      }
    }
  }
  if (!found.empty()) return found;
  throw InvalidArgument(fmt::format("gloo: {} names an unknown interface: expected one of {}, got '{}'", asked_by,
                                    fmt::join(names, ", "), name));
}

// True if `text` is a numeric address other than loopback.
bool is_for_others(const std::string& text) {
  in6_addr address{};
  if (inet_pton(AF_INET, text.c_str(), &address) == 1) return !text.starts_with("127.");
  return inet_pton(AF_INET6, text.c_str(), &address) == 1 && !IN6_IS_ADDR_LOOPBACK(&address);
}

const char* named_interfaces() {
  const char* const names = std::getenv("GLOO_SOCKET_IFNAME");
  return names && *names ? names : nullptr;
}

std::string default_address(const std::string& reach) {
  std::string why;
  const char* const master = std::getenv("MASTER_ADDR");
  const std::string towards = !reach.empty() ? reach : master ? master : "";
  if (!towards.empty()) {
    if (auto address = address_towards(towards, why)) return *address;
    throw InvalidArgument(fmt::format(
        "gloo: no route to '{}': {}. Set the option \"interface\" or GLOO_SOCKET_IFNAME.", towards, why));
  }
  std::array<char, HOST_NAME_MAX + 1> host{};
  if (gethostname(host.data(), host.size() - 1) == 0) {
    if (auto address = own_address(host.data(), why)) return *address;
  }
  return "127.0.0.1";
}

}  // namespace

std::string local_address(const std::map<std::string, std::string>& options, const std::string& reach) {
  for (const auto& [name, value] : options) {
    if (name != "interface" && name != "address") {
      throw InvalidArgument(fmt::format("gloo: unknown option: expected \"interface\" or \"address\", got '{}'", name));
    }
  }
  if (const auto it = options.find("address"); it != options.end()) {
    std::string why;
    if (auto address = own_address(it->second, why)) return *address;
    throw InvalidArgument(
        fmt::format("gloo: the option \"address\" is not an address of this host: got '{}': {}", it->second, why));
  }
  if (const auto it = options.find("interface"); it != options.end()) {
    return address_of_interface(it->second, "the option \"interface\"");
  }
  if (const char* const names = named_interfaces()) {
    const std::string list = names;  // PyTorch accepts a list; Hookline uses its first interface
    return address_of_interface(list.substr(0, list.find(',')), "GLOO_SOCKET_IFNAME");
  }
  return default_address(reach);
}

bool is_named(const std::map<std::string, std::string>& options) { return !options.empty() || named_interfaces(); }

std::string reachable_address(const std::string& own, const std::vector<std::string>& everybodys) {
  const auto other = std::find_if(everybodys.begin(), everybodys.end(), is_for_others);
  if (is_for_others(own) || other == everybodys.end()) return own;
  std::string why;
  return address_towards(*other, why).value_or(own);
}

}  // namespace hookline::gloo_engine
