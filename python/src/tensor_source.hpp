// Tensors on their way into Python code: the very objects that they came from where there are such.
#pragma once

#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

namespace hookline::python {

/// The array or torch tensor that this is a view of, where it shows just that memory; another view of it by the same
/// library where it shows a part; a NumPy array for memory that C++ has made. Needs the GIL.
nanobind::object array_of(const Tensor& tensor);
nanobind::object arrays_of(const std::vector<Tensor>& tensors);

/// Whether an object is a torch.Tensor; torch is not imported for this. Needs the GIL.
bool is_torch_tensor(nanobind::handle object);

}  // namespace hookline::python
