// References from the native part of a Python object to Python process groups, visible to the garbage collector.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/group/decorator.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// Counts the references of GcTrackedGroups to a group's Python object. The object's tp_traverse visits itself as
/// often, so that the garbage collector ignores them: only a GroupRefs, which has its own reference, keeps the object
/// alive.
class GroupRefCounter {
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

/// A Python process group, or a wrapper of one, for native code that a Python object owns.
class GcTrackedGroup final : public GroupDecorator {
 public:
  /// Needs the GIL.
  GcTrackedGroup(nb::handle object, std::shared_ptr<GroupRefCounter> ref_counter);
  GcTrackedGroup(const GcTrackedGroup&) = delete;
  GcTrackedGroup& operator=(const GcTrackedGroup&) = delete;
  ~GcTrackedGroup() override { ref_counter_->remove(); }

  /// Returns the Python object of the group.
  nb::object object() const { return object_.object(); }

 private:
  const PyRef object_;
  const std::shared_ptr<GroupRefCounter> ref_counter_;
};

/// Member of a bound class whose native part refers to groups; the class's tp_traverse visits them. Native code may
/// outlive this object and still owns the group, but then the garbage collector may clear it. All functions except the
/// destructor need the GIL.
class GroupRefs {
 public:
  GroupRefs() = default;
  GroupRefs(GroupRefs&&) = default;
  GroupRefs& operator=(GroupRefs&&) = default;

  /// Returns the group that the native part must use instead of `group`; null for null.
  std::shared_ptr<ProcessGroup> track(std::shared_ptr<ProcessGroup> group);
  /// Adds the references of `other`, whose native part is a part of this object's.
  void add_all(const GroupRefs& other);
  GroupRefs copy() const;
  bool empty() const noexcept { return objects_.empty(); }

  int traverse(visitproc visit, void* arg) const {
    for (const PyRef& object : objects_) Py_VISIT(object.get().ptr());
    return 0;
  }

 private:
  std::vector<PyRef> objects_;
};

/// Returns the original group of a GcTrackedGroup, and any other group unchanged.
std::shared_ptr<ProcessGroup> untracked(const std::shared_ptr<ProcessGroup>& group);

}  // namespace hookline::python
