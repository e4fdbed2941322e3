// Encodes and decodes the payload of abort messages.
#include "backend/engine/envelope.hpp"

#include <algorithm>
#include <cstring>

namespace hookline::engine {

std::string encode(const Cause& cause, Envelope& envelope) {
  const std::size_t count = std::min(cause.ranks.size(), kMostCauseRanks);
  envelope.tag = static_cast<std::int32_t>(count);
  std::string bytes(count * sizeof(int), '\0');
  if (count > 0) std::memcpy(bytes.data(), cause.ranks.data(), bytes.size());
  return bytes + cause.text;
}

Cause decode_cause(const Envelope& envelope, const std::byte* data) {
  const auto room = static_cast<std::int32_t>(std::min<std::size_t>(envelope.inlined / sizeof(int), kMostCauseRanks));
  Cause cause;
  cause.ranks.resize(static_cast<std::size_t>(std::clamp(envelope.tag, 0, room)));
  const std::size_t bytes = cause.ranks.size() * sizeof(int);
  if (bytes > 0) std::memcpy(cause.ranks.data(), data, bytes);
  cause.text.assign(reinterpret_cast<const char*>(data) + bytes, envelope.inlined - bytes);
  return cause;
}

}  // namespace hookline::engine
