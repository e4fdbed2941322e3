// Completion hooks written in Python.
#pragma once

#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/group/work_info.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// Calls a Python function with a WorkInfo, under the GIL. Throws its exceptions as the matching C++ errors, which
/// convert back into the same Python exceptions. Can be copied and destroyed on any thread.
class PythonOnCompletionHook {
 public:
  /// The function; empty after the garbage collector has cleared it.
  using Slot = std::shared_ptr<PyRef>;

  explicit PythonOnCompletionHook(Slot function) : function_(std::move(function)) {}
  void operator()(const WorkInfo& info) const;

 private:
  Slot function_;
};

/// The completion hooks of one group, for its Python object's tp_traverse and tp_clear. All functions need the GIL.
class CompletionHookList {
 public:
  PythonOnCompletionHook add(nb::object function);
  int traverse(visitproc visit, void* arg) const;
  void clear();

 private:
  std::vector<PythonOnCompletionHook::Slot> slots_;
};

}  // namespace hookline::python
