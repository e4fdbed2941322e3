// What a bound class shows to Python's garbage collector, and what it lets go of when it is part of a dead cycle.
#pragma once

#include <functional>

#include <nanobind/nanobind.h>

namespace hookline::python {

/// `Traverse(T&, visitproc, void*)` visits the objects that a T refers to; never before its __init__ is through.
template <class T, auto Traverse>
int traverse_slot(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return nanobind::inst_ready(self) ? std::invoke(Traverse, *nanobind::inst_ptr<T>(self), visit, arg) : 0;
}

/// `Clear(T&)` lets go of them.
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

/// The same for a class that lets go of nothing: a cycle has other objects, such as a dict, that the collector clears.
template <class T, auto Traverse>
inline PyType_Slot traverse_slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_slot<T, Traverse>)},
                                       {0, nullptr}};

}  // namespace hookline::python
