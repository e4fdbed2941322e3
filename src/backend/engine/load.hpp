// Loading engines: shared libraries that are found by the engine's name.
#pragma once

#include <memory>
#include <string>

#include <hookline/backend/engine.hpp>

namespace hookline::engine {

/// Loads the library of that name, once, and has it make an engine. `package` is what the user installs where it is
/// missing. Unsupported where there is none, or one of another version.
std::shared_ptr<Engine> load(const std::string& name, const std::string& package, const EngineSetting& setting);

}  // namespace hookline::engine
