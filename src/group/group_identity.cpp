// Unwraps decorators and forwarding groups.
#include "group/group_identity.hpp"

#include <hookline/group/decorator.hpp>

namespace hookline::group {

ForwardingGroup::~ForwardingGroup() = default;

const void* identity_of(const ProcessGroup& group) {
  const ProcessGroup* root = &group;
  while (const auto* const wrapper = dynamic_cast<const GroupDecorator*>(root)) root = wrapper->inner().get();
  if (const auto* const forwarding = dynamic_cast<const ForwardingGroup*>(root)) return forwarding->target();
  return root;
}

}  // namespace hookline::group
