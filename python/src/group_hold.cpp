// Which groups are held, and the way back to Python.
#include "group_hold.hpp"

#include <utility>

#include <nanobind/stl/shared_ptr.h>

#include "py_group.hpp"
#include "py_process_group.hpp"

namespace hookline::python {
namespace {

/// Null for a group that refers to nothing of Python's.
std::shared_ptr<HeldReferences> references_to(const ProcessGroup& group) {
  if (const auto* const python = python_group(group)) return python->held_references();
  const auto* const native = dynamic_cast<const NativeGroup*>(&group);
  return native && native->is_around_python() ? native->held_references() : nullptr;
}

}  // namespace

HeldGroup::HeldGroup(nb::handle object, std::shared_ptr<HeldReferences> references)
    : GroupDecorator(borrowed_group(object)), object_(nb::borrow(object)), references_(std::move(references)) {
  references_->add(object.ptr());
}

std::shared_ptr<ProcessGroup> GroupHold::hold(std::shared_ptr<ProcessGroup> group) {
  if (!group) return group;
  if (const auto* const held = dynamic_cast<const HeldGroup*>(group.get())) {
    objects_.emplace_back(held->object());
    return group;
  }
  auto references = references_to(*group);
  if (!references) return group;
  const nb::object object = nb::cast(group);
  objects_.emplace_back(object);
  return std::make_shared<HeldGroup>(object, std::move(references));
}

void GroupHold::contain(const GroupHold& other) {
  for (const PyRef& object : other.objects_) objects_.emplace_back(object.object());
}

GroupHold GroupHold::share() const {
  GroupHold shared;
  shared.contain(*this);
  return shared;
}

std::shared_ptr<ProcessGroup> for_python(const std::shared_ptr<ProcessGroup>& group) {
  const auto* const held = dynamic_cast<const HeldGroup*>(group.get());
  return held ? nb::cast<std::shared_ptr<ProcessGroup>>(held->object()) : group;
}

}  // namespace hookline::python
