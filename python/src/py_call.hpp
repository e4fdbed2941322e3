// Calls of methods that users have overridden in Python, with errors that name class and method.
#pragma once

#include <string>

#include <nanobind/nanobind.h>

namespace hookline::python {

namespace nb = nanobind;

/// The name of the object's class, as its author wrote it.
std::string class_of(nb::handle object);

/// Calls object.name(*arguments). Where the method cannot take them, TypeError with its own signature and the expected
/// one; what it raises itself is left as it is.
nb::object call_method(nb::handle object, nb::handle name, const nb::object& arguments, const char* signature);
nb::object call_method(nb::handle object, const char* name, const nb::object& arguments, const char* signature);

/// Whether object.name can be called with so many arguments; true where that cannot be said.
bool takes_arguments(nb::handle object, const char* name, int count);

/// "Class.__init__() must call super().__init__(arguments) before the object can be used"
std::string forgotten_init(nb::handle object, const char* arguments);

/// Throws a TypeError: "Class.method() must return …, and this returned …".
[[noreturn]] void wrong_result(nb::handle self, const char* method, const char* expected, nb::handle result);

}  // namespace hookline::python
