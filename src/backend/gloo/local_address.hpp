// Which of this host's addresses the others are to connect to.
#pragma once

#include <map>
#include <string>

namespace hookline::gloo_engine {

/// In numbers. By the options "interface" or "address", by GLOO_SOCKET_IFNAME, else the address from which `reach` is
/// reached, else that of this host's name, else 127.0.0.1. InvalidArgument for an option that is not known, an
/// interface or address that this host does not have, or a name that does not resolve.
std::string local_address(const std::map<std::string, std::string>& options, const std::string& reach);

}  // namespace hookline::gloo_engine
