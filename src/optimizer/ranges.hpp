// Range checks of optimizer options, with PyTorch's messages.
#pragma once

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::optimizer {

/// Throws InvalidArgument with the formatted value unless `condition` is true.
inline void require(bool holds, fmt::format_string<double> text, double value) {
  if (!holds) throw InvalidArgument(fmt::vformat(text, fmt::make_format_args(value)));
}

}  // namespace hookline::optimizer
