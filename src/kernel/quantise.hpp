// Values as integers of 8 or 4 bits with a scale for each block, and back.
#pragma once

#include <cstddef>

#include "kernel/draws.hpp"
#include "kernel/stores.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// How values become integers. A value is (code - zero) * scale, computed in float32, with the scale of its block.
///
/// Symmetric: zero is 2^(bits-1), the scale is the block's greatest magnitude by 2^(bits-1) - 1. Otherwise the codes
/// from 0 to 2^bits - 1 are spread from the least value to the greatest, and rounding to nearest moves zero to the
/// nearest code where the block has numbers of both signs, so that 0 stays 0. A scale is at least the least normal
/// float. A block with a NaN or an infinity has the scale NaN and codes 0.
///
/// In memory: for each block its scale and, unless symmetric, its zero, as floats; then for each block its codes, from
/// a whole byte on, of two codes of 4 bits the first in the lower half.
struct Quantisation {
  int bits = 8;
  bool symmetric = false;
  std::size_t block = 0;  ///< 0: all values are one

  constexpr std::size_t block_of(std::size_t count) const { return block && block < count ? block : count; }
  constexpr std::size_t blocks(std::size_t count) const { return count == 0 ? 0 : (count - 1) / block_of(count) + 1; }
  constexpr std::size_t scale_bytes(std::size_t count) const { return blocks(count) * (symmetric ? 4 : 8); }
  constexpr std::size_t code_bytes(std::size_t values) const { return bits == 8 ? values : values / 2 + values % 2; }
  constexpr std::size_t bytes(std::size_t count) const {
    if (count == 0) return 0;
    const std::size_t full = count / block_of(count);
    return scale_bytes(count) + full * code_bytes(block_of(count)) + code_bytes(count - full * block_of(count));
  }
};

/// Writes bytes(count) bytes. Rounds to nearest even, or with `draws` up or down by chance. With `error`, quantises
/// values + error and puts what of the sum was lost in its place, 0 where it was no number. No two arrays overlap.
void quantise(const Quantisation& how, const float* values, float* error, std::byte* to, std::size_t count,
              const Draws* draws = nullptr, Target target = best_target());

/// Reads bytes(count) bytes, whatever they are.
void dequantise(const Quantisation& how, const std::byte* from, float* to, std::size_t count,
                Stores stores = Stores::automatic, Target target = best_target());

/// The same, added to the floats. A sum that is no number is the canonical NaN.
void dequantise_add(const Quantisation& how, const std::byte* from, float* to, std::size_t count,
                    Target target = best_target());

/// What two of them hold, added and multiplied by the factor, in one pass. What is no number is the canonical NaN.
void dequantise_two(const Quantisation& how, const std::byte* first, const std::byte* second, float factor, float* to,
                    std::size_t count, Stores stores = Stores::automatic, Target target = best_target());

}  // namespace hookline::kernel
