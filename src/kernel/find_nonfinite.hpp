// Search for NaN and infinities.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// Returns the index of the first NaN or infinity, or `count` if there is none or the dtype is not floating point.
/// `data` must be aligned to the element size.
std::size_t find_nonfinite(DType dtype, const std::byte* data, std::size_t count, Target target = best_target());

}  // namespace hookline::kernel
