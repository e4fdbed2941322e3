// Parsing of init_method URLs such as tcp://host:port?rank=0&world_size=2.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace hookline::store {

struct Url {
  std::string scheme;
  std::string host;
  std::optional<std::uint16_t> port;
  std::string path;
  std::map<std::string, std::string, std::less<>> query;
};

/// Parses a URL. Throws InvalidArgument for a missing scheme or an invalid port or query. Does not unescape.
Url parse_url(std::string_view text);

/// Parses a decimal integer of 32 bits. Throws InvalidArgument naming `what`.
int parse_number(std::string_view what, std::string_view text);

}  // namespace hookline::store
