// The token of a job, from an option or the environment.
#pragma once

#include <optional>
#include <string>

namespace hookline::store {

/// Returns the explicit token, otherwise HOOKLINE_TOKEN, otherwise "" (the plain protocol).
std::string token_or_environment(const std::optional<std::string>& explicit_token);

/// True if HOOKLINE_ALLOW_UNAUTHENTICATED is 1.
bool environment_allows_unauthenticated();

}  // namespace hookline::store
