// Calls of Python overrides, with error messages that name the class and the method.
#pragma once

#include <string>

#include <nanobind/nanobind.h>

namespace hookline::python {

namespace nb = nanobind;

/// Returns the qualified name of the object's class.
std::string class_name_of(nb::handle object);

/// Calls object.name(*arguments). If the method does not accept the arguments, raises a TypeError with the actual and
/// the expected signature. Exceptions from inside the method are unchanged.
nb::object call_method(nb::handle object, nb::handle name, const nb::object& arguments, const char* signature);
nb::object call_method(nb::handle object, const char* name, const nb::object& arguments, const char* signature);

/// True if object.name accepts `count` positional arguments, or if its signature is unknown.
bool accepts_arguments(nb::handle object, const char* name, int count);

/// "Class.__init__() must call super().__init__(arguments) before the object can be used"
std::string missing_super_init(nb::handle object, const char* arguments);

/// Throws a TypeError: "Class.method(): expected … as the result, got …".
[[noreturn]] void throw_wrong_result(nb::handle self, const char* method, const char* expected, nb::handle result);

}  // namespace hookline::python
