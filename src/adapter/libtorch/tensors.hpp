// PyTorch's tensors as ours and ours as PyTorch's, over the same memory.
#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include <hookline/core/tensor.hpp>

namespace hookline::libtorch {

/// What an operation does with the elements: sums need numbers, the rest moves bytes of any kind.
enum class Use { moved, reduced };

/// A view of a CPU tensor's memory. Complex numbers are seen as pairs; dtypes that we lack, where they are only moved,
/// as integers of their size. With `owned` it keeps the tensor alive, else the caller does. Throws Unsupported for
/// another device, layout or dtype, InvalidArgument for a tensor whose elements are not what its memory says.
Tensor view_of(const at::Tensor& tensor, const char* operation, Use use, bool owned);
/// The same with an owner of the caller's choice.
Tensor view_of(const at::Tensor& tensor, const char* operation, Use use, std::shared_ptr<void> owner);

/// A tensor over the same memory, which it keeps alive.
at::Tensor tensor_of(const Tensor& tensor);

}  // namespace hookline::libtorch
