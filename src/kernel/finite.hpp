// Looks for NaN and infinities.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// The index of the first element that is NaN or infinite, or `count` where none is, as with integers. The pointer is
/// aligned to the element size.
std::size_t find_not_finite(DType dtype, const std::byte* data, std::size_t count, Target target = best_target());

}  // namespace hookline::kernel
