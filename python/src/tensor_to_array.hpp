// Converts tensors to Python arrays: the original Python objects if there are any.
#pragma once

#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

namespace hookline::python {

/// Returns the array or torch tensor that owns the memory if `tensor` views all of it, a new view by the same library
/// if `tensor` views a part, and a NumPy array for memory allocated in C++. Needs the GIL.
nanobind::object array_of(const Tensor& tensor);
nanobind::object arrays_of(const std::vector<Tensor>& tensors);

/// True if an object is a torch.Tensor. Does not import torch. Needs the GIL.
bool is_torch_tensor(nanobind::handle object);

}  // namespace hookline::python
