// Calls of Python overrides; distinguishes signature mismatches from errors inside the override.
#include "py_call.hpp"

#include <nanobind/stl/string.h>

namespace hookline::python {
namespace {

std::string signature_of(nb::handle method) {
  try {
    return nb::str(nb::module_::import_("inspect").attr("signature")(method)).c_str();
  } catch (const nb::python_error&) {
    return "(?)";
  }
}

}  // namespace

std::string class_name_of(nb::handle object) { return nb::cast<std::string>(object.type().attr("__qualname__")); }

nb::object call_method(nb::handle object, nb::handle name, const nb::object& arguments, const char* signature) {
  const nb::object method = nb::steal(PyObject_GetAttr(object.ptr(), name.ptr()));
  if (!method.is_valid()) throw nb::python_error();
  nb::object result = nb::steal(PyObject_CallObject(method.ptr(), arguments.ptr()));
  if (result.is_valid()) return result;
  nb::python_error error;
  // A TypeError without a traceback was raised by the call itself, not by the method's body.
  if (!error.matches(PyExc_TypeError) || error.traceback().is_valid()) throw error;
  const std::string method_name = nb::cast<std::string>(nb::str(name));
  const std::string actual_signature = signature_of(method);
  const std::string cause = nb::str(error.value()).c_str();
  nb::raise_from(error, PyExc_TypeError, "%s.%s%s cannot be called as %s%s: %s", class_name_of(object).c_str(),
                 method_name.c_str(), actual_signature.c_str(), method_name.c_str(), signature, cause.c_str());
}

nb::object call_method(nb::handle object, const char* name, const nb::object& arguments, const char* signature) {
  const nb::str key(name);
  return call_method(object, key, arguments, signature);
}

bool accepts_arguments(nb::handle object, const char* name, int count) {
  try {
    const nb::object signature = nb::module_::import_("inspect").attr("signature")(object.attr(name));
    nb::list placeholders;
    for (int i = 0; i < count; ++i) placeholders.append(nb::none());
    signature.attr("bind")(*placeholders);
    return true;
  } catch (const nb::python_error& e) {
    return !e.matches(PyExc_TypeError);
  }
}

std::string missing_super_init(nb::handle object, const char* arguments) {
  return class_name_of(object) + ".__init__() must call super().__init__(" + arguments +
         ") before the object can be used";
}

void throw_wrong_result(nb::handle self, const char* method, const char* expected, nb::handle result) {
  PyErr_Format(PyExc_TypeError, "%s.%s(): expected %s as the result, got %s", class_name_of(self).c_str(), method,
               expected, result.is_none() ? "None" : class_name_of(result).c_str());
  throw nb::python_error();
}

}  // namespace hookline::python
