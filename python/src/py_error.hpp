// Translation of errors between C++ and Python, in both directions.
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

/// The Python exception inside a C++ error that was translated from Python.
class PythonException {
 public:
  explicit PythonException(PyRef exception) : exception_(std::move(exception)) {}
  virtual ~PythonException();
  const PyRef& exception() const noexcept { return exception_; }

 private:
  PyRef exception_;
};

/// A Python exception as a C++ error: hookline.Timeout becomes a Timeout, and an exception of another library an Error.
/// Translating it back to Python gives the original exception object. Unlike nb::python_error, it can be stored, copied
/// and rethrown any number of times.
template <class E>
class TranslatedError final : public E, public PythonException {
 public:
  TranslatedError(const std::string& message, std::vector<int> ranks, PyRef exception)
      : E(message, std::move(ranks)), PythonException(std::move(exception)) {}
};

/// Returns the C++ error for a Python exception, with a prefix for its message. Needs the GIL, as all functions below.
std::exception_ptr error_from_python(PyRef exception, const std::string& prefix = {});

/// Returns the Python exception for a C++ error, with its chain of causes as __cause__.
nb::object error_to_python(const std::exception_ptr& error);

/// Sets Python's error indicator to an exception object, with its traceback.
void set_python_error(nb::handle exception);

/// Calls `f` and rethrows a Python exception as the matching C++ error. For code whose errors may end up in a Future,
/// and for trampolines whose C++ callers catch hookline errors.
template <class F>
decltype(auto) with_translated_errors(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const nb::python_error& e) {
    std::rethrow_exception(error_from_python(PyRef(nb::borrow(e.value()))));
  }
}

/// Calls `f` as with_translated_errors() does, from any thread, with the GIL. Throws Aborted with the text `what`
/// during Python's finalization.
template <class F>
decltype(auto) call_python(std::string_view what, F&& f) {
  const GilAcquire gil;
  if (!gil) throw Aborted(std::string(what) + ": Python is finalizing");
  return with_translated_errors(std::forward<F>(f));
}

}  // namespace hookline::python
