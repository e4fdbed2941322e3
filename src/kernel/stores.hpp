// How kernels write their results.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hookline::kernel {

/// Streaming goes around the caches: it saves reading a destination's lines before they are overwritten, and costs
/// whoever reads them next. Automatic streams where one call writes kStreamFrom bytes or more; a caller that cuts a
/// large range into pieces knows better and says so.
enum class Stores : std::uint8_t { automatic, cached, streaming };

/// From about here on, streaming measured faster and the caches would not keep the result anyway.
inline constexpr std::size_t kStreamFrom = std::size_t{4} << 20;

/// Whether a call that writes so many bytes is to stream them.
constexpr bool streams(Stores stores, std::size_t bytes) {
  return stores == Stores::streaming || (stores == Stores::automatic && bytes >= kStreamFrom);
}

}  // namespace hookline::kernel
