// Errors that cross the border between C++ and Python, in both directions.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/error.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// The Python exception inside an error that came out of Python.
class PythonException {
 public:
  explicit PythonException(PyRef exception) : exception_(std::move(exception)) {}
  virtual ~PythonException();
  const PyRef& exception() const noexcept { return exception_; }

 private:
  PyRef exception_;
};

/// A Python exception as a C++ error: hookline.Timeout is caught as Timeout, and what has no type of ours as Error. On
/// its way back into Python it turns into the very object that it was made from. Unlike nb::python_error it can be
/// stored, copied and raised any number of times.
template <class E>
class FromPython final : public E, public PythonException {
 public:
  FromPython(const std::string& message, std::vector<int> ranks, PyRef exception)
      : E(message, std::move(ranks)), PythonException(std::move(exception)) {}
};

/// The C++ error of a Python exception object, its message with a prefix. Needs the GIL, as everything below.
std::exception_ptr error_from_python(PyRef exception, const std::string& prefix = {});

/// The Python exception object of any C++ error, with its chain of causes as __cause__.
nb::object error_to_python(const std::exception_ptr& error);

/// Sets Python's error indicator to an exception object, with the traceback that it has.
void set_python_error(nb::handle exception);

/// Calls `f`; a Python exception leaves it as the matching C++ error. For everything that may end up in a Future, and
/// for trampolines whose C++ callers catch our types.
template <class F>
decltype(auto) translating_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const nb::python_error& e) {
    std::rethrow_exception(error_from_python(PyRef(nb::borrow(e.value()))));
  }
}

/// The same on any thread, with the GIL; Aborted, saying `what` it was for, where Python is ending.
template <class F>
decltype(auto) in_python(std::string_view what, F&& f) {
  const GilStay stay;
  if (!stay) throw Aborted(std::string(what) + ": Python is ending");
  return translating_errors(std::forward<F>(f));
}

}  // namespace hookline::python
