// Python capsules that hold a std::shared_ptr, which pass groups, stores and hooks between extension modules.
#pragma once

#include <memory>
#include <utility>

#include <Python.h>

namespace hookline::adapter {

// Names of the capsules; all modules that exchange them link to the same library.
inline constexpr const char* kGroupCapsule = "hookline.ProcessGroup";
inline constexpr const char* kHookCapsule = "hookline.CommHook";
inline constexpr const char* kStoreCapsule = "hookline.Store";

/// Returns a new capsule that owns `object`, or null with Python's error indicator set. The object is released in the
/// scope of a GilRelease, because the destructor of a group joins threads that may need the GIL.
template <class GilRelease, class T>
PyObject* new_shared_capsule(std::shared_ptr<T> object, const char* name) {
  auto owned = std::make_unique<std::shared_ptr<T>>(std::move(object));
  PyObject* const capsule = PyCapsule_New(owned.get(), name, [](PyObject* dying) {
    const std::unique_ptr<std::shared_ptr<T>> kept(
        static_cast<std::shared_ptr<T>*>(PyCapsule_GetPointer(dying, PyCapsule_GetName(dying))));
    const GilRelease released;
    kept->reset();
  });
  if (capsule) static_cast<void>(owned.release());
  return capsule;
}

/// Returns the object of a capsule; null if `capsule` is not a capsule of this name.
template <class T>
std::shared_ptr<T> shared_from_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return nullptr;
  return *static_cast<std::shared_ptr<T>*>(PyCapsule_GetPointer(capsule, name));
}

}  // namespace hookline::adapter
