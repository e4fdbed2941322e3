// Creates backends by name, including transports in plug-in libraries, which are loaded at first use.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/backend/transport.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// Creates this rank's endpoint of a group on the named backend; every rank calls it. A name other than the built-in
/// ones selects a transport library libhookline_NAME.so, searched for in HOOKLINE_TRANSPORT_PATH (directories separated
/// by colons), then beside libhookline.so. Throws InvalidArgument for an unknown name, Unsupported for a transport that
/// is not installed, and everything that the backend throws.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_backend(const std::string& name, const TransportConfig& config);

/// Throws if make_backend() would reject the name. Call it before contacting other ranks.
HOOKLINE_EXPORT void check_backend(const std::string& name);

/// Returns the names of the known backends, installed or not.
HOOKLINE_EXPORT std::vector<std::string> backend_names();

}  // namespace hookline
