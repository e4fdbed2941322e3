// Encodes and decodes the payload of abort messages.
#include "backend/p2p/envelope.hpp"

#include <algorithm>
#include <cstring>

namespace hookline::p2p {

std::string encode_cause(const AbortCause& cause, Envelope& envelope) {
  const std::size_t count = std::min(cause.ranks.size(), kMaxCauseRanks);
  envelope.tag = static_cast<std::int32_t>(count);
  std::string bytes(count * sizeof(int), '\0');
  if (count > 0) std::memcpy(bytes.data(), cause.ranks.data(), bytes.size());
  return bytes + cause.text;
}

AbortCause decode_cause(const Envelope& envelope, const std::byte* data) {
  const auto max_ranks =
      static_cast<std::int32_t>(std::min<std::size_t>(envelope.inline_bytes / sizeof(int), kMaxCauseRanks));
  AbortCause cause;
  cause.ranks.resize(static_cast<std::size_t>(std::clamp(envelope.tag, 0, max_ranks)));
  const std::size_t bytes = cause.ranks.size() * sizeof(int);
  if (bytes > 0) std::memcpy(cause.ranks.data(), data, bytes);
  cause.text.assign(reinterpret_cast<const char*>(data) + bytes, envelope.inline_bytes - bytes);
  return cause;
}

}  // namespace hookline::p2p
