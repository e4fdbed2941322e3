// The identity of a host, to find out which processes can share memory.
#pragma once

#include <string>

namespace hookline::backend {

/// Returns a string that is equal in two processes if they can share memory: they run on one kernel, in the same
/// network and PID namespaces. Throws ResourceError if /proc cannot be read.
std::string host_identity();

}  // namespace hookline::backend
