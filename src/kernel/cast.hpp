// Casts between float32 and the two 16-bit formats, to nearest even, at the speed of memory.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/stores.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

// `dtype` is f16 or bf16. The 16-bit side may have any alignment, and the two sides do not overlap. A NaN becomes the
// canonical one, what f16 cannot hold an infinity. The target must be among supported_targets(); all give the same
// bits.

/// Rounds floats to 16 bits.
void narrow(DType dtype, const float* from, std::byte* to, std::size_t count, Stores stores = Stores::automatic,
            Target target = best_target());

/// Rounds from + error, and puts in the place of each error what was lost, or 0 where that is no finite number.
void narrow_with_error(DType dtype, const float* from, float* error, std::byte* to, std::size_t count,
                       Target target = best_target());

/// 16 bits as floats.
void widen(DType dtype, const std::byte* from, float* to, std::size_t count, Stores stores = Stores::automatic,
           Target target = best_target());

/// The same, added to the floats. A sum that is no number is the canonical NaN.
void widen_add(DType dtype, const std::byte* from, float* to, std::size_t count, Target target = best_target());

/// What two of them hold, added and multiplied by the factor, in one pass. What is no number is the canonical NaN.
void widen_two(DType dtype, const std::byte* first, const std::byte* second, float factor, float* to, std::size_t count,
               Target target = best_target());

}  // namespace hookline::kernel
