// Calls from C++ into completion hooks, and the class WorkInfo.
#include "completion_hook.hpp"

#include <chrono>
#include <string>
#include <utility>

#include <nanobind/stl/string.h>

#include "py_error.hpp"
#include "rooms.hpp"
#include "wall_time.hpp"

namespace hookline::python {

void PythonOnCompletionHook::operator()(const WorkInfo& info) const {
  with_gil([&] {
    if (!*function_) return;
    translating_errors([&] { function_->object()(info); });
  });
}

PythonOnCompletionHook HookList::add(nb::object function) {
  slots_.push_back(std::make_shared<PyRef>(std::move(function)));
  return PythonOnCompletionHook(slots_.back());
}

int HookList::traverse(visitproc visit, void* arg) const {
  for (const auto& slot : slots_) Py_VISIT(slot->get().ptr());
  return 0;
}

void HookList::clear() {
  for (const auto& slot : slots_) const PyRef dropped = std::exchange(*slot, PyRef());
}

void bind_completion(nb::module_& m) {
  nb::class_<WorkInfo>(m, "WorkInfo", "What a completion hook is told about an operation that is over.")
      .def_prop_ro(
          "op_type", [](const WorkInfo& i) { return std::string(name(i.op_type)); },
          "The name of the method that started it.")
      .def_ro("seq", &WorkInfo::seq, "Counts the group's operations on this rank, from 1.")
      .def_prop_ro("time_started", [](const WorkInfo& i) { return on_the_wall(i.time_started); })
      .def_prop_ro("time_finished", [](const WorkInfo& i) { return on_the_wall(i.time_finished); })
      .def_prop_ro(
          "active_duration",
          [](const WorkInfo& i) { return std::chrono::duration_cast<std::chrono::microseconds>(i.active_duration); },
          "From its start, or from the end of the operation before it in its lane where that came later.")
      .def_ro("lane", &WorkInfo::lane)
      .def_ro("bucket", &WorkInfo::bucket)
      .def_ro("bytes", &WorkInfo::bytes, "Of this rank's inputs; of its outputs where it has none.")
      .def_prop_ro(
          "error", [](const WorkInfo& i) -> nb::object { return i.error ? error_to_python(i.error) : nb::none(); },
          nb::sig("def error(self) -> BaseException | None"), "None where it succeeded.")
      .def("__repr__", [](const WorkInfo& i) {
        return "<hookline.WorkInfo " + std::string(name(i.op_type)) + " number " + std::to_string(i.seq) + ", " +
               (i.error ? "failed>" : "done>");
      });
}

}  // namespace hookline::python
