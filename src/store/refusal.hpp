// Reasons for which the TCP store server rejects a client, and its storage quota.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hookline::store {

enum class Refusal : std::uint8_t {
  token_missing,
  token_wrong,
  token_unexpected,
  version,
  malformed,
  connections,
  keys,
  bytes,
  value_bytes,
  buffered_bytes,
};
inline constexpr std::size_t kRefusals = 10;

/// Returns the reason and the remedy for the server's log.
std::string_view explain(Refusal refusal);

/// Storage limits for all clients together; see TCPStoreLimits.
struct StoreQuota {
  std::size_t keys = std::size_t{512} * 1024;
  std::size_t bytes = std::size_t{256} * 1024 * 1024;
  std::size_t value_bytes = std::size_t{64} * 1024 * 1024;
};

}  // namespace hookline::store
