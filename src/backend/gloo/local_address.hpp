// Which of this host's addresses the others are to connect to.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hookline::gloo_engine {

/// In numbers. By the options "interface" or "address", by GLOO_SOCKET_IFNAME, else the address from which `reach` is
/// reached, else that of this host's name, else 127.0.0.1. InvalidArgument for an option that is not known, an
/// interface or address that this host does not have, or a name that does not resolve.
std::string local_address(const std::map<std::string, std::string>& options, const std::string& reach);

/// Whether the user named it: by an option, or by GLOO_SOCKET_IFNAME.
bool is_named(const std::map<std::string, std::string>& options);

/// The own address, unless it is one that only this host reaches (a host may know the store's host, itself, as
/// 127.0.1.1) and another rank has one that all reach: then the one from which that is reached.
std::string reachable_address(const std::string& own, const std::vector<std::string>& everybodys);

}  // namespace hookline::gloo_engine
