// The parts of an init_method such as tcp://host:port?rank=0&world_size=2.
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

/// Throws InvalidArgument for what has no scheme, or a port or query that cannot be read. Nothing is unescaped.
Url parse_url(std::string_view text);

/// A whole number in decimal and nothing else; InvalidArgument naming `what` otherwise.
int parse_number(std::string_view what, std::string_view text);

}  // namespace hookline::store
