// StoreMode: cached or streaming (non-temporal) stores.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hookline::kernel {

/// Streaming stores bypass the caches: they avoid reading destination lines before overwriting them, but the next read
/// of the result misses the cache. `automatic` streams if one call writes at least kStreamThresholdBytes bytes; callers
/// that split a large range should choose explicitly.
enum class StoreMode : std::uint8_t { automatic, cached, streaming };

/// From this size on, streaming was faster in measurements; caches would not keep a result of this size.
inline constexpr std::size_t kStreamThresholdBytes = std::size_t{4} << 20;

/// True if a call that writes `bytes` bytes should stream.
constexpr bool should_stream(StoreMode mode, std::size_t bytes) {
  return mode == StoreMode::streaming || (mode == StoreMode::automatic && bytes >= kStreamThresholdBytes);
}

}  // namespace hookline::kernel
