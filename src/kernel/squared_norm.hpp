// Squared norm of an array.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// Returns the sum of squares of `count` elements. The target must be among supported_targets(); results are bitwise
/// identical on all targets.
double sum_of_squares(DType dtype, const std::byte* data, std::size_t count, Target target = best_target());

}  // namespace hookline::kernel
