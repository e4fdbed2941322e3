// Refuses options that are out of range, with PyTorch's texts.
#pragma once

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::optimizer {

/// InvalidArgument with the value in the text where something does not hold. A NaN never holds.
inline void require(bool holds, fmt::format_string<double> text, double value) {
  if (!holds) throw InvalidArgument(fmt::vformat(text, fmt::make_format_args(value)));
}

}  // namespace hookline::optimizer
