// Exports hookline.Tensor: DLPack capsules, the buffer protocol, NumPy arrays.
#pragma once

#include <optional>
#include <utility>

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

namespace hookline::python {

/// Implements Tensor.__dlpack__ of the array API standard. The capsule keeps the memory alive.
nanobind::object to_capsule(const Tensor& tensor, nanobind::handle stream,
                            std::optional<std::pair<std::int64_t, std::int64_t>> max_version,
                            std::optional<std::pair<std::int64_t, std::int64_t>> dl_device, std::optional<bool> copy);

/// Returns a NumPy array of the same memory. bfloat16 becomes the ml_dtypes type if installed, else uint16.
nanobind::object to_numpy(const Tensor& tensor);

/// The bf_getbuffer slot of the Python class. bfloat16, which has no format character, raises BufferError.
int get_buffer(PyObject* self, Py_buffer* view, int flags);

}  // namespace hookline::python
