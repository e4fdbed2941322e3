// Groups, stores and hooks as capsules: how they get to other extension modules that link to the same library, and
// back.
#include <memory>
#include <string>
#include <utility>

#include <nanobind/stl/shared_ptr.h>

#include <hookline/store/store.hpp>

#include "gil_release.hpp"
#include "py_error.hpp"
#include "py_group.hpp"
#include "py_hook.hpp"
#include "py_process_group.hpp"
#include "rooms.hpp"

namespace hookline::python {
namespace {

// A capsule holds a std::shared_ptr<T> under one of these names.
constexpr const char* kGroupCapsule = "hookline.ProcessGroup";
constexpr const char* kHookCapsule = "hookline.CommHook";
constexpr const char* kStoreCapsule = "hookline.Store";
// These hold the function itself.
constexpr const char* kErrorToPython = "hookline.error_to_python";
constexpr const char* kOwnerOfObject = "hookline.owner_of_object";

/// A new reference to the Python exception of a C++ error; null, with Python's error indicator set, where there is no
/// memory for it. Needs the GIL.
PyObject* exception_from(const std::exception_ptr& error) noexcept {
  try {
    return error_to_python(error).release().ptr();
  } catch (nb::python_error& e) {
    e.restore();
    return nullptr;
  }
}

/// An owner for tensors that show an object's memory: array_of() gives the object back. Needs the GIL.
std::shared_ptr<void> owner_of(PyObject* object) { return PyRef(nb::borrow(object)).owner(); }

/// True where operations of the group call methods of a Python class.
bool calls_python(const ProcessGroup& group) {
  const auto* const native = dynamic_cast<const NativeGroup*>(&group);
  return native ? native->wraps_python_groups() : as_python_group(group) != nullptr;
}

template <class T>
nb::capsule capsule_of(std::shared_ptr<T> object, const char* name) {
  return nb::capsule(new std::shared_ptr<T>(std::move(object)), name, [](void* pointer) noexcept {
    const std::unique_ptr<std::shared_ptr<T>> kept(static_cast<std::shared_ptr<T>*>(pointer));
    const GilRelease released;  // the end of a group waits for threads that may want it
    kept->reset();
  });
}

template <class T>
std::shared_ptr<T> object_from(nb::handle capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule.ptr(), name)) {
    throw nb::type_error(("a capsule of " + std::string(name) + " is expected").c_str());
  }
  return *static_cast<std::shared_ptr<T>*>(PyCapsule_GetPointer(capsule.ptr(), name));
}

/// Without what only Python needs of it, where that is all: other modules may keep it beyond the end of Python.
std::shared_ptr<ProcessGroup> without_python_wrapper(std::shared_ptr<ProcessGroup> group) {
  const auto* const native = dynamic_cast<NativeGroup*>(group.get());
  return native && !native->wraps_python_groups() ? native->inner() : group;
}

/// The Python object that it has already, or a new one around a group that was made elsewhere.
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
      arg("group"), "A group for another extension module that links to this library.");
  m.def("group_from_capsule", &group_from, arg("capsule"), "The group in such a capsule.");
  m.def(
      "store_to_capsule", [](std::shared_ptr<Store> store) { return capsule_of(std::move(store), kStoreCapsule); },
      arg("store"), "The same for a store.");
  m.def(
      "store_from_capsule", [](nb::handle capsule) { return object_from<Store>(capsule, kStoreCapsule); },
      arg("capsule"), "The store in such a capsule.");
  m.def(
      "hook_to_capsule",
      [](const nb::typed<nb::object, PyHook>& hook) {
        return capsule_of<CommHookInterface>(owning_hook(hook), kHookCapsule);
      },
      arg("hook"), "The same for a hook.");
  m.def(
      "error_to_python", [] { return nb::capsule(reinterpret_cast<void*>(&exception_from), kErrorToPython); },
      "For another extension module: the function that makes the Python exception of a C++ error.");
  m.def(
      "owner_of_object", [] { return nb::capsule(reinterpret_cast<void*>(&owner_of), kOwnerOfObject); },
      "For another extension module: the function that makes a Python object the owner of a tensor.");
  m.def("calls_python", &calls_python, arg("group"), "True where operations of the group call a Python class.");
  m.def(
      "group_of_hook", [](const PyHook& hook) { return untracked(hook.group); }, arg("hook"),
      "The group that it was made for.");
  m.def(
      "hook_from_capsule",
      [](nb::handle capsule, std::shared_ptr<ProcessGroup> group) {
        return PyHook{object_from<CommHookInterface>(capsule, kHookCapsule), std::move(group)};
      },
      arg("capsule"), arg("group"), "The hook in a capsule, on the group that it was made for.");
}

}  // namespace hookline::python
