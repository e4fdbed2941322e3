// Lists of arrays as the collectives take them, with the objects that they came from.
#pragma once

#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

#include "tensor_import.hpp"

namespace hookline::python {

namespace nb = nanobind;

/// Tensors, and a Python list of the very objects.
struct TensorList {
  std::vector<Tensor> tensors;
  nb::object objects = nb::steal(PyList_New(0));

  void add(nb::handle object) {
    tensors.push_back(to_tensor(object));
    if (PyList_Append(objects.ptr(), object.ptr()) != 0) throw nb::python_error();
  }
};

inline bool is_sequence(nb::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

/// One array, or a list or tuple of them.
inline TensorList tensors_of(nb::handle object) {
  TensorList list;
  if (!is_sequence(object)) {
    list.add(object);
  } else {
    for (const nb::handle item : nb::borrow<nb::object>(object)) list.add(item);
  }
  return list;
}

/// The same of what torch takes as a list for each device, of which there is one here: [[a, b]] as well as [a, b], and
/// None for nothing.
inline TensorList tensors_of_nested(nb::handle object) {
  if (object.is_none()) return {};
  if (is_sequence(object) && nb::len(object) == 1) {
    const nb::object only = object[0];
    if (is_sequence(only)) return tensors_of(only);
  }
  return tensors_of(object);
}

}  // namespace hookline::python
