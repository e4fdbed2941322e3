// Completion hooks written in Python.
#pragma once

#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/group/work_info.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// What C++ calls for a Python function: takes the GIL, calls it with a WorkInfo, and throws what it raises as the
/// matching C++ error, which turns back into the Python exception. May be copied and dropped on any thread.
class PythonOnCompletionHook {
 public:
  /// The function itself; empty once the garbage collector has taken it.
  using Slot = std::shared_ptr<PyRef>;

  explicit PythonOnCompletionHook(Slot function) : function_(std::move(function)) {}
  void operator()(const WorkInfo& info) const;

 private:
  Slot function_;
};

/// The hooks of one group, as its Python object shows them to the garbage collector.
class HookList {
 public:
  /// With the GIL, as everything here.
  PythonOnCompletionHook add(nb::object function);
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  std::vector<PythonOnCompletionHook::Slot> slots_;
};

}  // namespace hookline::python
