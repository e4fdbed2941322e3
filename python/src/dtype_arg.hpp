// Dtype arguments: strings, or the dtype objects of NumPy, ml_dtypes and torch.
#pragma once

#include <nanobind/nanobind.h>

#include <hookline/core/dtype.hpp>

namespace hookline::python {

/// A dtype argument of a bound function. Accepts any object; value() throws a more helpful error than a TypeError.
struct DTypeArg {
  nanobind::object object;

  /// Accepts "float32", "f32", numpy.float32, numpy.dtype("float32"), torch.float32, ml_dtypes.bfloat16, and Python's
  /// float, int and bool with NumPy's meaning. Throws InvalidArgument for everything else.
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
