// Calls of Python completion hooks from C++.
#include "completion_hook.hpp"

#include <utility>

#include "py_error.hpp"

namespace hookline::python {

void PythonOnCompletionHook::operator()(const WorkInfo& info) const {
  with_gil([&] {
    if (!*function_) return;
    with_translated_errors([&] { function_->object()(info); });
  });
}

PythonOnCompletionHook CompletionHookList::add(nb::object function) {
  slots_.push_back(std::make_shared<PyRef>(std::move(function)));
  return PythonOnCompletionHook(slots_.back());
}

int CompletionHookList::traverse(visitproc visit, void* arg) const {
  for (const auto& slot : slots_) Py_VISIT(slot->get().ptr());
  return 0;
}

void CompletionHookList::clear() {
  for (const auto& slot : slots_) const PyRef released = std::exchange(*slot, PyRef());
}

}  // namespace hookline::python
