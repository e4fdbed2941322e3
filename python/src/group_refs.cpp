// Tracked group references, and their conversion back to the original groups.
#include "group_refs.hpp"

#include <utility>

#include <nanobind/stl/shared_ptr.h>

#include "py_group.hpp"
#include "py_process_group.hpp"

namespace hookline::python {
namespace {

/// Returns null for a group without references to Python objects.
std::shared_ptr<GroupRefCounter> ref_counter_of(const ProcessGroup& group) {
  if (const auto* const python = as_python_group(group)) return python->ref_counter();
  const auto* const native = dynamic_cast<const NativeGroup*>(&group);
  return native && native->wraps_python_groups() ? native->ref_counter() : nullptr;
}

}  // namespace

GcTrackedGroup::GcTrackedGroup(nb::handle object, std::shared_ptr<GroupRefCounter> ref_counter)
    : GroupDecorator(borrowed_group(object)), object_(nb::borrow(object)), ref_counter_(std::move(ref_counter)) {
  ref_counter_->add(object.ptr());
}

std::shared_ptr<ProcessGroup> GroupRefs::track(std::shared_ptr<ProcessGroup> group) {
  if (!group) return group;
  if (const auto* const tracked = dynamic_cast<const GcTrackedGroup*>(group.get())) {
    objects_.emplace_back(tracked->object());
    return group;
  }
  auto ref_counter = ref_counter_of(*group);
  if (!ref_counter) return group;
  const nb::object object = nb::cast(group);
  objects_.emplace_back(object);
  return std::make_shared<GcTrackedGroup>(object, std::move(ref_counter));
}

void GroupRefs::add_all(const GroupRefs& other) {
  for (const PyRef& object : other.objects_) objects_.emplace_back(object.object());
}

GroupRefs GroupRefs::copy() const {
  GroupRefs result;
  result.add_all(*this);
  return result;
}

std::shared_ptr<ProcessGroup> untracked(const std::shared_ptr<ProcessGroup>& group) {
  const auto* const tracked = dynamic_cast<const GcTrackedGroup*>(group.get());
  return tracked ? nb::cast<std::shared_ptr<ProcessGroup>>(tracked->object()) : group;
}

}  // namespace hookline::python
