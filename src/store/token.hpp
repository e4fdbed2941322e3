// The token of a job: from an option, or from the environment.
#pragma once

#include <optional>
#include <string>

namespace hookline::store {

/// Returns the given token, otherwise the value of HOOKLINE_TOKEN, otherwise "", the plain protocol.
std::string token_or_environment(const std::optional<std::string>& given);

/// Returns true if HOOKLINE_ALLOW_UNAUTHENTICATED is 1.
bool environment_allows_unauthenticated();

}  // namespace hookline::store
