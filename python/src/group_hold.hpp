// Groups held by the native part of a Python object, so that the garbage collector sees through it.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/group/decorator.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// Counts the references that HeldGroups have to a group's Python object. The object itself shows them to the garbage
/// collector: they keep it alive only as long as a GroupHold, which has a reference of its own, does.
class HeldReferences {
 public:
  void add(PyObject* object) {
    object_ = object;
    ++count_;
  }
  void remove() { --count_; }
  int traverse(visitproc visit, void* arg) const {
    for (long i = count_; i > 0; --i) Py_VISIT(object_.load());
    return 0;
  }

 private:
  std::atomic<long> count_ = 0;
  std::atomic<PyObject*> object_ = nullptr;
};

/// A group that is a Python class, or is around one, for native code that a Python object owns.
class HeldGroup final : public GroupDecorator {
 public:
  /// Needs the GIL.
  HeldGroup(nb::handle object, std::shared_ptr<HeldReferences> references);
  HeldGroup(const HeldGroup&) = delete;
  HeldGroup& operator=(const HeldGroup&) = delete;
  ~HeldGroup() override { references_->remove(); }

  /// The Python object of the group.
  nb::object object() const { return object_.object(); }

 private:
  const PyRef object_;
  const std::shared_ptr<HeldReferences> references_;
};

/// Member of a bound class whose native part holds groups; its tp_traverse visits them. Native code keeps a group alive
/// even after that, but no longer from the garbage collector. Needs the GIL, except for its end.
class GroupHold {
 public:
  GroupHold() = default;
  GroupHold(GroupHold&&) = default;
  GroupHold& operator=(GroupHold&&) = default;

  /// Returns what the native part has to use in the place of the group; null for null.
  std::shared_ptr<ProcessGroup> hold(std::shared_ptr<ProcessGroup> group);
  /// Holds what `other` does: for an object whose native part contains that of another.
  void contain(const GroupHold& other);
  GroupHold share() const;
  bool empty() const noexcept { return objects_.empty(); }

  int traverse(visitproc visit, void* arg) const {
    for (const PyRef& object : objects_) Py_VISIT(object.get().ptr());
    return 0;
  }

 private:
  std::vector<PyRef> objects_;
};

/// The group of a Python object for Python: the very one that it was given.
std::shared_ptr<ProcessGroup> for_python(const std::shared_ptr<ProcessGroup>& group);

}  // namespace hookline::python
