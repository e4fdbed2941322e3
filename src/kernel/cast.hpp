// Casts between float32 and float16 or bfloat16, rounding to nearest even.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/store_mode.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

// `dtype` is f16 or bf16. The 16-bit side may have any alignment; the two sides must not overlap. NaN becomes the
// canonical NaN, values beyond the range of f16 become infinity. The target must be among supported_targets(); results
// are bitwise identical on all targets.

/// Rounds floats to 16 bits.
void narrow(DType dtype, const float* from, std::byte* to, std::size_t count,
            StoreMode store_mode = StoreMode::automatic, Target target = best_target());

/// Rounds from + residual, and replaces each residual by the rounding error, or by 0 if that is not finite.
void narrow_with_residual(DType dtype, const float* from, float* residual, std::byte* to, std::size_t count,
                          Target target = best_target());

/// Converts 16-bit values to float32.
void widen(DType dtype, const std::byte* from, float* to, std::size_t count,
           StoreMode store_mode = StoreMode::automatic, Target target = best_target());

/// Converts and adds to `to`. NaN sums become the canonical NaN.
void widen_add(DType dtype, const std::byte* from, float* to, std::size_t count, Target target = best_target());

/// Writes (first + second) * factor in one pass. NaN results become the canonical NaN.
void widen_sum_two(DType dtype, const std::byte* first, const std::byte* second, float factor, float* to,
                   std::size_t count, Target target = best_target());

}  // namespace hookline::kernel
