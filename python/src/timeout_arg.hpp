// Timeouts as Python users give them: seconds as a number, or a timedelta.
#pragma once

#include <cmath>
#include <string>

#include <nanobind/nanobind.h>

#include <hookline/core/deadline.hpp>
#include <hookline/core/error.hpp>

namespace hookline::python {

/// An argument of a bound function; std::optional of it also takes None.
struct TimeoutArg {
  double seconds = 0;

  /// Rounded up to whole milliseconds. Throws InvalidArgument for what is negative or not a number.
  operator Milliseconds() const {  // NOLINT(google-explicit-constructor): it is nothing else
    if (!(seconds >= 0)) {
      throw hookline::InvalidArgument("a timeout must not be negative, and this one is " + std::to_string(seconds) +
                                      " s");
    }
    const double longest = std::chrono::duration<double>(kLongestTimeout).count();
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
      // Of all that has this method only timedelta is meant; a lookup is cheaper than importing datetime's C API.
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
