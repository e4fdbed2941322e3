// Chooses the address of this host that peers connect to.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hookline::gloo_transport {

/// Returns this host's address in numeric form. Sources, in order: the options "interface" and "address",
/// GLOO_SOCKET_IFNAME, the source address of packets to `route_hint` or MASTER_ADDR, the address of this host's name,
/// 127.0.0.1. Throws InvalidArgument for an unknown option, interface or address, and for a name that does not resolve.
std::string local_address(const std::map<std::string, std::string>& options, const std::string& route_hint);

/// True if an option or GLOO_SOCKET_IFNAME chooses the address.
bool has_explicit_address(const std::map<std::string, std::string>& options);

/// Returns `own`, unless `own` is a loopback address and another rank has a routable one: then returns the source
/// address of packets to that rank. (A host may resolve its own name to 127.0.1.1.)
std::string reachable_address(const std::string& own, const std::vector<std::string>& all);

}  // namespace hookline::gloo_transport
