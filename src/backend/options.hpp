// Which options the backends take, for those who choose one of several.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hookline::backend {

using Options = std::map<std::string, std::string>;

/// InvalidArgument naming an option that none of these backends takes, and those that they take. What an engine that is
/// not this library's own takes is not known: with one among them, all options pass.
void check_options(const std::vector<std::string>& backends, const Options& options);

/// Those of the options that the backend takes.
Options options_of(const std::string& backend, const Options& options);

}  // namespace hookline::backend
