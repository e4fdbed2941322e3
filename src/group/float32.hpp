// Conversion of floating-point tensors to float32 and back.
#pragma once

#include <hookline/core/tensor.hpp>

namespace hookline::group {

/// Returns the elements as a flat, contiguous float32 tensor: a view if the tensor is one already, else a copy. Throws
/// InvalidArgument for integers.
Tensor as_float32(const Tensor& tensor);

/// Copies the result of as_float32 back into the tensor. Does nothing if it is a view of it.
void from_float32(const Tensor& values, const Tensor& tensor);

}  // namespace hookline::group
