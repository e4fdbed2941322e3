// The squared norm with the code of one target.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// The sum of the squares of `count` elements. The target must be among supported_targets(); all give the same bits.
double sum_of_squares_on(Target target, DType dtype, const std::byte* data, std::size_t count);

}  // namespace hookline::kernel
