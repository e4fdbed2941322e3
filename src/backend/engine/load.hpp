// Loading engines: shared libraries that are found by the engine's name.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::engine {

using MakeEngine = void(const EngineSetting*, std::shared_ptr<Engine>*);

/// Loads the library of that name, once, and returns what makes its engines. `package` is what the user installs where
/// it is missing. Unsupported where there is none, or one of another version.
MakeEngine* load(const std::string& name, const std::string& package);

/// The places where the library is looked for, in their order: the folders of HOOKLINE_ENGINE_PATH, then where
/// libhookline lies. So an engine built for another MPI, say, takes the place of the one that came along.
std::vector<std::filesystem::path> places(const std::string& name);

}  // namespace hookline::engine
