// Timeout arguments: seconds as a number, or a timedelta.
#pragma once

#include <cmath>
#include <string>

#include <nanobind/nanobind.h>

#include <hookline/core/deadline.hpp>
#include <hookline/core/error.hpp>

namespace hookline::python {

/// A timeout argument of a bound function; std::optional<TimeoutArg> also accepts None.
struct TimeoutArg {
  double seconds = 0;

  /// Rounds up to whole milliseconds. Throws InvalidArgument for a negative number or NaN.
  operator Milliseconds() const {  // NOLINT(google-explicit-constructor): a plain wrapper
    if (!(seconds >= 0)) {
      throw hookline::InvalidArgument("timeout: expected at least 0 s, got " + std::to_string(seconds) + " s");
    }
    const double longest = std::chrono::duration<double>(kMaxTimeout).count();
    return Milliseconds(static_cast<Milliseconds::rep>(std::ceil(std::min(seconds, longest) * 1000.0)));
  }
};

}  // namespace hookline::python

template <>
struct nanobind::detail::type_caster<hookline::python::TimeoutArg> {
  NB_TYPE_CASTER(hookline::python::TimeoutArg, const_name("float | datetime.timedelta"))

  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    object number = borrow(source);
    if (!PyFloat_Check(source.ptr()) && !PyLong_Check(source.ptr())) {
      // Duck typing for timedelta: an attribute lookup is cheaper than importing datetime's C API.
      number = steal(PyObject_CallMethod(source.ptr(), "total_seconds", nullptr));
      if (!number.is_valid()) number = steal(PyNumber_Float(source.ptr()));
    }
    PyErr_Clear();
    if (!number.is_valid() || PyUnicode_Check(source.ptr())) return false;
    value.seconds = PyFloat_AsDouble(number.ptr());
    if (!PyErr_Occurred()) return true;
    PyErr_Clear();
    return false;
  }
};
