// Which processes are on one host, as far as sharing memory goes.
#pragma once

#include <string>

namespace hookline::backend {

/// The same text in two processes that can share memory: they run on one kernel, and see each other's abstract
/// sockets and processes.
/// ResourceError where the system does not tell.
std::string host_identity();

}  // namespace hookline::backend
