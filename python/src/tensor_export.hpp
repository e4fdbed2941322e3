// A hookline.Tensor for others: DLPack capsules, the buffer protocol, NumPy arrays.
#pragma once

#include <optional>
#include <utility>

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

namespace hookline::python {

/// Tensor.__dlpack__ as the array API standard has it; the capsule keeps the memory alive.
nanobind::object to_capsule(const Tensor& tensor, nanobind::handle stream,
                            std::optional<std::pair<std::int64_t, std::int64_t>> max_version,
                            std::optional<std::pair<std::int64_t, std::int64_t>> dl_device, std::optional<bool> copy);

/// A NumPy array of the same memory. bfloat16 comes as that of ml_dtypes where it is installed, else as its bits.
nanobind::object to_numpy(const Tensor& tensor);

/// The slot of the buffer protocol, for the Python class; bfloat16, which has no letter there, is a BufferError.
int get_buffer(PyObject* self, Py_buffer* view, int flags);

}  // namespace hookline::python
