// Tensor norms that are bitwise identical on all ranks and processors.
#pragma once

#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// Returns the sum of the squares of all elements as a one-element tensor: float64 for float64, float32 otherwise.
/// Accumulates in double precision, in an order that depends on the number of elements only.
HOOKLINE_EXPORT Tensor squared_norm(const Tensor& tensor);

}  // namespace hookline
