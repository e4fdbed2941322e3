// Multiplies an array by a number.
#pragma once

#include <array>
#include <cstddef>

#include "kernel/reduce.hpp"

namespace hookline::kernel {

/// A sum of one addend with a factor is what reduce calls it; floating-point dtypes, computed and written as there. The
/// two arrays may be the same.
inline void scale(DType dtype, const std::byte* from, std::byte* to, std::size_t count, double factor,
                  Stores stores = Stores::automatic, Target target = best_target()) {
  const std::array<const std::byte*, 1> sources = {from};
  const std::array<std::byte*, 1> destinations = {to};
  reduce(ReduceOp::premul_sum(factor), dtype, sources, destinations, count, stores, target);
}

}  // namespace hookline::kernel
