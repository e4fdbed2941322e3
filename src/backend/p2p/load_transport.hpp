// Loads transports from shared libraries, by name.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/transport.hpp>

namespace hookline::p2p {

using MakeTransport = void(const TransportConfig*, std::shared_ptr<Transport>*);

/// Loads the library of a transport, once, and returns its factory function. `package` is what the error message tells
/// the user to install. Throws Unsupported if the library is missing or of another version.
MakeTransport* load_transport(const std::string& name, const std::string& package);

/// Returns the search path of the library, in order: the directories of HOOKLINE_TRANSPORT_PATH, then the directory of
/// libhookline. A user's own build, for another MPI say, therefore comes first.
std::vector<std::filesystem::path> library_paths(const std::string& name);

}  // namespace hookline::p2p
