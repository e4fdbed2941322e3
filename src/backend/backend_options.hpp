// The options that each backend accepts.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hookline::backend {

using Options = std::map<std::string, std::string>;

/// Throws InvalidArgument for an option that none of the backends accepts. Accepts all options if one of the backends
/// is a third-party transport, because its options are unknown.
void check_options(const std::vector<std::string>& backends, const Options& options);

/// Returns the options that the backend accepts.
Options options_accepted_by(const std::string& backend, const Options& options);

}  // namespace hookline::backend
