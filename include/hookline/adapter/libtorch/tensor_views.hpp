// Tensors of libtorch as Hookline's and back, without a copy.
#pragma once

#include <ATen/ATen.h>
#include <ATen/DLConvertor.h>

#include <hookline/core/error.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline::libtorch {

/// A view that keeps the memory alive. Throws Unsupported for a tensor that is not dense, not on the CPU, or of a dtype
/// that there is none of, and for a conjugate or negative view, whose memory has other numbers.
inline Tensor tensor_view(const at::Tensor& tensor) {
  if (!tensor.defined()) throw InvalidArgument("a tensor of libtorch is undefined");
  if (tensor.layout() != at::kStrided || !tensor.device().is_cpu() || tensor.is_conj() || tensor.is_neg()) {
    throw Unsupported("a tensor of libtorch on " + tensor.device().str() +
                      ": dense ones on the CPU are taken, without conjugate or negative views; pass a copy made by "
                      "to_dense(), cpu(), resolve_conj() or resolve_neg()");
  }
  DLManagedTensor* const managed = at::toDLPack(tensor.detach());
  try {
    return Tensor::from_dlpack(managed);
  } catch (...) {
    managed->deleter(managed);
    throw;
  }
}

/// The other way.
inline at::Tensor torch_view(const Tensor& tensor) { return at::fromDLPack(tensor.to_dlpack_unversioned()); }

}  // namespace hookline::libtorch
