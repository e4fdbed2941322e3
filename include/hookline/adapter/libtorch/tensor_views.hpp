// Zero-copy conversion between tensors of libtorch and Hookline.
#pragma once

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>

#include <hookline/core/error.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline::libtorch {

/// Returns a Hookline tensor that shares the memory of `tensor` and keeps it alive. Throws Unsupported for a tensor
/// that is not dense, not on the CPU or of an unsupported dtype, and for a conjugate or negative view.
inline Tensor tensor_view(const at::Tensor& tensor) {
  if (!tensor.defined()) throw InvalidArgument("tensor_view: expected a defined tensor, got an undefined one");
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.is_conj() || tensor.is_neg()) {
    throw Unsupported("tensor_view: unsupported tensor on " + tensor.device().str() +
                      ": expected a dense CPU tensor that is not a conjugate or negative view. Pass a copy made by "
                      "to_dense(), cpu(), resolve_conj() or resolve_neg().");
  }
  DLManagedTensor* const managed = at::toDLPack(tensor.detach());
  try {
    return Tensor::from_dlpack(managed);
  } catch (...) {
    managed->deleter(managed);
    throw;
  }
}

/// Returns a libtorch tensor that shares the memory of `tensor` and keeps it alive.
inline at::Tensor torch_view(const Tensor& tensor) { return at::fromDLPack(tensor.to_dlpack_unversioned()); }

}  // namespace hookline::libtorch
