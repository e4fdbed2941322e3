// Imports Python arrays and tensors as hookline::Tensor without a copy.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

namespace hookline::python {

/// Returns a view of the memory of a hookline.Tensor, a torch tensor, a NumPy array (also ml_dtypes bfloat16), a DLPack
/// capsule (which is consumed), or any object that exports DLPack or the buffer protocol. The view keeps the object
/// alive and can be destroyed on any thread. A torch tensor that requires grad is treated as detached: autograd does
/// not see writes. Needs the GIL. Throws Unsupported for another device or dtype, InvalidArgument for an inconsistent
/// tensor, TypeError for other objects.
Tensor to_tensor(nanobind::handle object);

/// An array argument of a bound function. tensor() converts it, with more helpful errors than a type caster.
struct TensorArg {
  nanobind::object object;
  Tensor tensor() const { return to_tensor(object); }
};

}  // namespace hookline::python

template <>
struct nanobind::detail::type_caster<hookline::python::TensorArg> {
  NB_TYPE_CASTER(hookline::python::TensorArg, const_name("typing.Any"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.object = borrow(source);
    return !source.is_none();
  }
};
