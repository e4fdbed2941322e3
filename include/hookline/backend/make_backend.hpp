// Backends by name: those of this library, and engines in libraries of their own that are loaded at first use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/backend/engine.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// This rank's end of a group on the backend of that name; every rank calls it. A name that is none of this library's
/// own is that of an engine: it is looked for as libhookline_NAME.so in HOOKLINE_ENGINE_PATH (directories, separated by
/// colons), then beside libhookline.so. InvalidArgument listing the names for one that is not known, Unsupported saying
/// what to install for an engine that is not there; otherwise what the backend throws.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_backend(const std::string& name, const EngineSetting& setting);

/// Throws what make_backend would throw for the name alone: to be asked before meeting the others.
HOOKLINE_EXPORT void check_backend(const std::string& name);

/// The names that are known, installed or not.
HOOKLINE_EXPORT std::vector<std::string> backend_names();

}  // namespace hookline
