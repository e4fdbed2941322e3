// Reasons for which the TCP store server rejects a client, and its storage quota.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hookline::store {

enum class RejectReason : std::uint8_t {
  token_missing,
  token_wrong,
  token_unexpected,
  handshake_version,
  malformed,
  max_connections,
  max_keys,
  max_bytes,
  max_value_bytes,
  max_buffered_bytes,
};
inline constexpr std::size_t kNumRejectReasons = 10;

/// Returns the reason and the remedy for the server's log.
std::string_view describe(RejectReason reason);

/// Storage limits for all clients together; see TCPStoreLimits.
struct StoreQuota {
  std::size_t max_keys = std::size_t{512} * 1024;
  std::size_t max_bytes = std::size_t{256} * 1024 * 1024;
  std::size_t max_value_bytes = std::size_t{64} * 1024 * 1024;
};

}  // namespace hookline::store
