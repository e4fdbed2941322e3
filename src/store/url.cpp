// Parsing of init_method URLs.
#include "store/url.hpp"

#include <charconv>
#include <limits>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::store {

namespace {

/// Truncates `text` at the first `delimiter` and returns the part after it; empty without a delimiter.
std::string_view split_off(std::string_view& text, std::string_view delimiter) {
  const std::size_t at = text.find(delimiter);
  if (at == std::string_view::npos) return {};
  const std::string_view after = text.substr(at + delimiter.size());
  text = text.substr(0, at);
  return after;
}

}  // namespace

int parse_number(std::string_view what, std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc::result_out_of_range) {
    throw InvalidArgument(
        fmt::format("rendezvous: {} is out of range: expected a whole number of 32 bits, got \"{}\"", what, text));
  }
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) {
    throw InvalidArgument(fmt::format("rendezvous: invalid {}: expected a whole number, got \"{}\"", what, text));
  }
  return number;
}

Url parse_url(std::string_view text) {
  const std::string_view whole = text;
  std::string_view query = split_off(text, "?");
  split_off(query, "#");
  const std::size_t colon = text.find("://");
  if (colon == std::string_view::npos || colon == 0) {
    throw InvalidArgument(
        fmt::format("rendezvous(\"{}\"): no scheme: expected env://, file:///path?rank=…&world_size=… or "
                    "tcp://host:port?rank=…&world_size=…",
                    whole));
  }
  Url url;
  url.scheme = text.substr(0, colon);
  text.remove_prefix(colon + 3);

  const std::size_t slash = std::min(text.find('/'), text.size());
  url.path = text.substr(slash);
  std::string_view authority = text.substr(0, slash);
  std::string_view port;
  if (authority.starts_with('[')) {
    authority.remove_prefix(1);
    const std::string_view after = split_off(authority, "]");
    if (after.starts_with(':')) port = after.substr(1);
  } else {
    port = split_off(authority, ":");
  }
  url.host = authority;
  if (!port.empty()) {
    const int number = parse_number("the port", port);
    if (number < 0 || number > std::numeric_limits<std::uint16_t>::max()) {
      throw InvalidArgument(
          fmt::format("rendezvous(\"{}\"): port must have value from 0 to 65535 but was {}", whole, number));
    }
    url.port = static_cast<std::uint16_t>(number);
  }

  while (!query.empty()) {
    std::string_view pair = query;
    query = split_off(pair, "&");
    std::string_view key = pair;
    const std::string_view value = split_off(key, "=");
    if (!url.query.emplace(key, value).second) {
      throw InvalidArgument(fmt::format("rendezvous(\"{}\"): duplicate parameter {}", whole, key));
    }
  }
  return url;
}

}  // namespace hookline::store
