// Binds capsules, which pass groups, stores and hooks to other extension modules that link to the same library.
#include <memory>
#include <string>
#include <utility>

#include <nanobind/stl/shared_ptr.h>

#include <hookline/store/store.hpp>

#include "adapter/shared_capsule.hpp"
#include "bindings.hpp"
#include "gil_release.hpp"
#include "py_error.hpp"
#include "py_group.hpp"
#include "py_hook.hpp"
#include "py_process_group.hpp"

namespace hookline::python {
namespace {

using adapter::kGroupCapsule;
using adapter::kHookCapsule;
using adapter::kStoreCapsule;
// Names of capsules that hold a function pointer.
constexpr const char* kErrorToPython = "hookline.error_to_python";
constexpr const char* kOwnerOfObject = "hookline.owner_of_object";

/// Returns a new reference to the Python exception for a C++ error; null, with Python's error indicator set, if memory
/// runs out. Needs the GIL.
PyObject* exception_from(const std::exception_ptr& error) noexcept {
  try {
    return error_to_python(error).release().ptr();
  } catch (nb::python_error& e) {
    e.restore();
    return nullptr;
  }
}

/// Returns an owner for tensors that view an object's memory; array_of() returns that object again. Needs the GIL.
std::shared_ptr<void> owner_of(PyObject* object) { return PyRef(nb::borrow(object)).owner(); }

/// True if operations of the group call Python methods.
bool calls_python(const ProcessGroup& group) {
  const auto* const native = dynamic_cast<const NativeGroup*>(&group);
  return native ? native->wraps_python_groups() : as_python_group(group) != nullptr;
}

template <class T>
nb::capsule capsule_of(std::shared_ptr<T> object, const char* name) {
  auto capsule = nb::steal<nb::capsule>(adapter::new_shared_capsule<GilRelease>(std::move(object), name));
  if (!capsule.is_valid()) throw nb::python_error();
  return capsule;
}

template <class T>
std::shared_ptr<T> object_from(nb::handle capsule, const char* name) {
  auto object = adapter::shared_from_capsule<T>(capsule.ptr(), name);
  if (!object) throw nb::type_error(("expected a capsule of " + std::string(name)).c_str());
  return object;
}

/// Returns the inner group of a NativeGroup that wraps no Python groups, since other modules may keep it beyond the end
/// of Python.
std::shared_ptr<ProcessGroup> without_python_wrapper(std::shared_ptr<ProcessGroup> group) {
  const auto* const native = dynamic_cast<NativeGroup*>(group.get());
  return native && !native->wraps_python_groups() ? native->inner() : group;
}

/// Returns the group of a capsule; wraps it in a NativeGroup if another module created it.
std::shared_ptr<ProcessGroup> group_from(nb::handle capsule) {
  auto group = object_from<ProcessGroup>(capsule, kGroupCapsule);
  const bool known = dynamic_cast<NativeGroup*>(group.get()) || dynamic_cast<PyProcessGroup*>(group.get());
  return known ? group : NativeGroup::make(std::move(group));
}

}  // namespace

void bind_capsule(nb::module_& m) {
  using nb::arg;
  m.def(
      "group_to_capsule",
      [](std::shared_ptr<ProcessGroup> group) {
        return capsule_of(without_python_wrapper(std::move(group)), kGroupCapsule);
      },
      arg("group"), "Returns a capsule with a group, for another extension module that links to this library.");
  m.def("group_from_capsule", &group_from, arg("capsule"), "Returns the group of a capsule.");
  m.def(
      "store_from_capsule", [](nb::handle capsule) { return object_from<Store>(capsule, kStoreCapsule); },
      arg("capsule"), "Returns the store of a capsule.");
  m.def(
      "hook_to_capsule",
      [](const nb::typed<nb::object, PyHook>& hook) {
        return capsule_of<CommHookInterface>(owning_hook(hook), kHookCapsule);
      },
      arg("hook"), "Returns a capsule with a hook.");
  m.def(
      "error_to_python", [] { return nb::capsule(reinterpret_cast<void*>(&exception_from), kErrorToPython); },
      "Returns a capsule with the function that creates the Python exception for a C++ error.");
  m.def(
      "owner_of_object", [] { return nb::capsule(reinterpret_cast<void*>(&owner_of), kOwnerOfObject); },
      "Returns a capsule with the function that makes a Python object the owner of a tensor.");
  m.def("calls_python", &calls_python, arg("group"), "True if operations of the group call Python methods.");
  m.def(
      "group_of_hook", [](const PyHook& hook) { return untracked(hook.group); }, arg("hook"),
      "Returns the group of a hook.");
  m.def(
      "hook_from_capsule",
      [](nb::handle capsule, std::shared_ptr<ProcessGroup> group) {
        return PyHook{object_from<CommHookInterface>(capsule, kHookCapsule), std::move(group)};
      },
      arg("capsule"), arg("group"), "Returns the hook of a capsule; group is the hook's group.");
}

}  // namespace hookline::python
