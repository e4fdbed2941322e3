// Loads transports from shared libraries, by name.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::engine {

using MakeEngine = void(const EngineSetting*, std::shared_ptr<Engine>*);

/// Loads the library of a transport, once, and returns its factory function. `package` is what the error message tells
/// the user to install. Throws Unsupported if the library is missing or of another version.
MakeEngine* load(const std::string& name, const std::string& package);

/// Returns the search path of the library, in order: the directories of HOOKLINE_TRANSPORT_PATH, then the directory of
/// libhookline. A user's own build, for another MPI say, therefore comes first.
std::vector<std::filesystem::path> places(const std::string& name);

}  // namespace hookline::engine
