// Norms of tensors, with the same bits on every rank and processor.
#pragma once

#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// The sum of the squares of all elements, as a tensor of one element: float64 for float64, float32 otherwise.
/// Computed in double precision in an order that depends on the number of elements alone.
HOOKLINE_EXPORT Tensor squared_norm(const Tensor& tensor);

}  // namespace hookline
