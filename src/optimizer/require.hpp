// Range checks of optimizer options, with PyTorch's messages.
#pragma once

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::optimizer {

/// Throws InvalidArgument with the formatted value unless `condition` is true.
inline void require(bool condition, fmt::format_string<double> format, double value) {
  if (!condition) throw InvalidArgument(fmt::vformat(format, fmt::make_format_args(value)));
}

}  // namespace hookline::optimizer
