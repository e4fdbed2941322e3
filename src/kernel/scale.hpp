// Multiplies an array by a number, in place.
#pragma once

#include <array>
#include <cstddef>

#include "kernel/reduce.hpp"

namespace hookline::kernel {

/// A sum of one addend with a factor is what reduce calls it; floating-point dtypes, computed as there.
inline void scale(DType dtype, std::byte* values, std::size_t count, double factor, Target target = best_target()) {
  const std::array<const std::byte*, 1> sources = {values};
  const std::array<std::byte*, 1> destinations = {values};
  reduce_on(target, ReduceOp::premul_sum(factor), dtype, sources, destinations, count);
}

}  // namespace hookline::kernel
