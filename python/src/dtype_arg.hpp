// Dtypes as Python users name them: text, or the dtype objects of NumPy, ml_dtypes and torch.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/core/dtype.hpp>

namespace hookline::python {

/// An argument of a bound function. Anything is taken at first: value() knows better what to say than a TypeError
/// would.
struct DTypeArg {
  nanobind::object object;

  /// "float32", "f32", numpy.float32, numpy.dtype("float32"), torch.float32, ml_dtypes.bfloat16, or Python's float, int
  /// and bool, which mean what they mean to NumPy. Throws InvalidArgument for everything else.
  DType value() const;
};

}  // namespace hookline::python

template <>
struct nanobind::detail::type_caster<hookline::python::DTypeArg> {
  NB_TYPE_CASTER(hookline::python::DTypeArg, const_name("typing.Any"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    value.object = borrow(source);
    return true;
  }
};
