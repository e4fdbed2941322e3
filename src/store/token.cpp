// Access to HOOKLINE_TOKEN and HOOKLINE_ALLOW_UNAUTHENTICATED.
#include "store/token.hpp"

#include <cstdlib>
#include <string_view>

namespace hookline::store {

std::string token_or_environment(const std::optional<std::string>& explicit_token) {
  if (explicit_token) return *explicit_token;
  const char* const token = std::getenv("HOOKLINE_TOKEN");
  return token ? token : "";
}

bool environment_allows_unauthenticated() {
  const char* const value = std::getenv("HOOKLINE_ALLOW_UNAUTHENTICATED");
  return value && std::string_view(value) == "1";
}

}  // namespace hookline::store
