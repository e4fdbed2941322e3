// Multiplication of an array by a factor.
#pragma once

#include <array>
#include <cstddef>

#include "kernel/reduce.hpp"

namespace hookline::kernel {

/// Scales a floating-point array, as a premul_sum reduction of one source. The two arrays may be equal.
inline void scale(DType dtype, const std::byte* from, std::byte* to, std::size_t count, double factor,
                  StoreMode store_mode = StoreMode::automatic, Target target = best_target()) {
  const std::array<const std::byte*, 1> sources = {from};
  const std::array<std::byte*, 1> destinations = {to};
  reduce(ReduceOp::premul_sum(factor), dtype, sources, destinations, count, store_mode, target);
}

}  // namespace hookline::kernel
