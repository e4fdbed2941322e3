// Blockwise quantization of float32 values to 8-bit or 4-bit integers, and dequantization.
#pragma once

#include <cstddef>

#include "kernel/counter_rng.hpp"
#include "kernel/store_mode.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// The quantization format. A decoded value is (code - zero_point) * scale of its block, computed in float32.
///
/// Symmetric: zero_point is 2^(bits-1), and scale is the maximum magnitude of the block / (2^(bits-1) - 1). Affine:
/// codes 0 to 2^bits - 1 cover the range from minimum to maximum; when rounding to nearest, zero_point is an integer if
/// the block has both signs, so that 0 stays exact. The scale is at least the smallest normal float. A block with NaN
/// or infinity has scale NaN and codes 0.
///
/// Layout: scale and, if affine, zero_point of each block as floats; then the codes of each block, starting on a byte
/// boundary, two 4-bit codes per byte with the first in the low nibble.
struct QuantizationParams {
  int bits = 8;
  bool symmetric = false;
  std::size_t block = 0;  ///< values per block; 0: all values

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

/// Quantizes `count` values into bytes(count) bytes. Rounds to nearest even, or stochastically if `rng` is given. With
/// `residual`, quantizes values + residual and replaces each residual by the quantization error, or by 0 if that is not
/// finite. Arrays must not overlap.
void quantize(const QuantizationParams& params, const float* values, float* residual, std::byte* to, std::size_t count,
              const CounterRng* rng = nullptr, Target target = best_target());

/// Dequantizes bytes(count) bytes with any contents.
void dequantize(const QuantizationParams& params, const std::byte* from, float* to, std::size_t count,
                StoreMode store_mode = StoreMode::automatic, Target target = best_target());

/// Dequantizes and adds to `to`. NaN sums become the canonical NaN.
void dequantize_add(const QuantizationParams& params, const std::byte* from, float* to, std::size_t count,
                    Target target = best_target());

/// Writes (first + second) * factor in one pass. NaN results become the canonical NaN.
void dequantize_sum_two(const QuantizationParams& params, const std::byte* first, const std::byte* second, float factor,
                        float* to, std::size_t count, StoreMode store_mode = StoreMode::automatic,
                        Target target = best_target());

}  // namespace hookline::kernel
