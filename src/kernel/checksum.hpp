// A vectorized checksum that detects accidental corruption. Not cryptographic.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// Returns a checksum: mixes 32-bit words in 32 lanes with invertible steps, then folds the lanes. Detects all
/// corruption within one aligned word, and other corruption with probability 1 - 2^-32. Identical on every target.
std::uint32_t checksum(const std::byte* data, std::size_t bytes, std::uint32_t seed, Target target = best_target());

}  // namespace hookline::kernel
