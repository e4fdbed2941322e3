// Zero-copy conversion of tensors between PyTorch and Hookline.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <hookline/core/tensor.hpp>

namespace hookline::libtorch {

/// The use of the elements: reductions need an arithmetic dtype, copies accept any.
enum class TensorUse { copy, reduce };

/// Returns a view of a CPU tensor. Complex elements become pairs of reals; for copies, unsupported dtypes become
/// integers of the same size. With `keep_alive` the view keeps the tensor alive, otherwise the caller must. Throws
/// Unsupported for another device, layout or dtype, and InvalidArgument for a conjugate or negative view.
Tensor view_of(const at::Tensor& tensor, const char* operation, TensorUse use, bool keep_alive);
/// The same, but keeps `owner` alive.
Tensor view_of(const at::Tensor& tensor, const char* operation, TensorUse use, std::shared_ptr<void> owner);

/// Returns a torch tensor that shares the memory of `tensor` and keeps it alive.
at::Tensor tensor_of(const Tensor& tensor);

}  // namespace hookline::libtorch
