// A checksum of bytes, fast beside the codecs: it tells damage, not malice.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// 32 lanes of 32-bit words, each mixed by steps that can be undone, then folded: damage within one aligned word always
/// shows, other damage all but once in 2^32. The same on every target.
std::uint32_t checksum(const std::byte* data, std::size_t bytes, std::uint32_t seed, Target target = best_target());

}  // namespace hookline::kernel
