// Arrays and tensors of Python as hookline::Tensor, without a copy: what every binding that takes tensors uses.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

namespace hookline::python {

/// A view of the memory of a hookline.Tensor, a torch tensor, a NumPy array (bfloat16 of ml_dtypes too), a DLPack
/// capsule (which is consumed), or anything else that exports DLPack or the buffer protocol. It keeps the object alive
/// and may be dropped on any thread. A torch tensor that requires a gradient is taken as if detached: writing to it is
/// not seen by autograd. Needs the GIL. Throws Unsupported for another device or dtype, InvalidArgument for what makes
/// no sense, TypeError for what is no tensor at all.
Tensor to_tensor(nanobind::handle object);

/// An argument of a bound function that takes arrays: the conversion is left to tensor(), whose errors say more.
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
