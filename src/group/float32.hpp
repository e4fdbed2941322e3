// Floating-point tensors of any dtype as float32.
#pragma once

#include <hookline/core/tensor.hpp>

namespace hookline::group {

/// The elements in one flat piece of float32: the tensor's own memory where it is that already, else a copy.
/// InvalidArgument for integers.
Tensor as_float32(const Tensor& tensor);

/// Brings what as_float32 gave back to the tensor; nothing to do where they share their memory.
void from_float32(const Tensor& values, const Tensor& tensor);

}  // namespace hookline::group
