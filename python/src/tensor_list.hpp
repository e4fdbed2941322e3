// Lists of tensors for collectives, together with their Python objects.
#pragma once

#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/tensor.hpp>

#include "tensor_import.hpp"

namespace hookline::python {

namespace nb = nanobind;

/// Tensors, and a Python list of their original objects.
struct TensorList {
  std::vector<Tensor> tensors;
  nb::object objects = nb::steal(PyList_New(0));

  void add(nb::handle object) {
    tensors.push_back(to_tensor(object));
    if (PyList_Append(objects.ptr(), object.ptr()) != 0) throw nb::python_error();
  }
};

inline bool is_sequence(nb::handle object) { return PyList_Check(object.ptr()) || PyTuple_Check(object.ptr()); }

/// Converts one array, or a list or tuple of arrays.
inline TensorList tensors_of(nb::handle object) {
  TensorList list;
  if (!is_sequence(object)) {
    list.add(object);
  } else {
    for (const nb::handle item : nb::borrow<nb::object>(object)) list.add(item);
  }
  return list;
}

/// As tensors_of(), also for torch's nested form with one list per device (always one): [[a, b]]. None is an empty
/// list.
inline TensorList tensors_of_nested(nb::handle object) {
  if (object.is_none()) return {};
  if (is_sequence(object) && nb::len(object) == 1) {
    const nb::object only = object[0];
    if (is_sequence(only)) return tensors_of(only);
  }
  return tensors_of(object);
}

}  // namespace hookline::python
