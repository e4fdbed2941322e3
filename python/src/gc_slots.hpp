// tp_traverse and tp_clear slots of bound classes, for Python's garbage collector.
#pragma once

#include <functional>

#include <nanobind/nanobind.h>

namespace hookline::python {

/// `Traverse(T&, visitproc, void*)` visits the objects that a T refers to. Not called before its __init__ has finished.
template <class T, auto Traverse>
int traverse_slot(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nanobind::inst_ready(self) ? std::invoke(Traverse, *nanobind::inst_ptr<T>(self), visit, arg) : 0;
}

/// `Clear(T&)` drops these references.
template <class T, auto Clear>
int clear_slot(PyObject* self) {
  if (nanobind::inst_ready(self)) std::invoke(Clear, *nanobind::inst_ptr<T>(self));
  return 0;
}

/// For nb::type_slots.
template <class T, auto Traverse, auto Clear>
inline PyType_Slot gc_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_slot<T, Traverse>)},
                                 {Py_tp_clear, reinterpret_cast<void*>(clear_slot<T, Clear>)},
                                 {0, nullptr}};

/// For a class without tp_clear: a cycle also contains other objects, such as a dict, that the collector can clear.
template <class T, auto Traverse>
inline PyType_Slot traverse_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_slot<T, Traverse>)},
                                       {0, nullptr}};

}  // namespace hookline::python
