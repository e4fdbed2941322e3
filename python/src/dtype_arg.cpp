// Finds the name of a dtype in a Python object.
#include "dtype_arg.hpp"

#include <nanobind/stl/string.h>

namespace hookline::python {
namespace {

namespace nb = nanobind;

std::string name_of(nb::handle object) {
  if (nb::isinstance<nb::str>(object)) return nb::cast<std::string>(object);
  if (object.ptr() == reinterpret_cast<PyObject*>(&PyFloat_Type)) return "float64";
  if (object.ptr() == reinterpret_cast<PyObject*>(&PyLong_Type)) return "int64";
  if (PyType_Check(object.ptr())) return nb::cast<std::string>(object.attr("__name__"));  // numpy.float32, bool
  if (nb::hasattr(object, "name")) return nb::cast<std::string>(nb::str(object.attr("name")));
  return nb::str(object).c_str();
}

}  // namespace

DType DTypeArg::value() const {
  std::string name = name_of(object);
  if (name.starts_with("torch.")) name.erase(0, 6);
  return parse_dtype(name);
}

}  // namespace hookline::python
