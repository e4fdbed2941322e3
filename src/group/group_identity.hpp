// Identity of a process group behind its wrappers.
#pragma once

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline::group {

/// Base of groups that forward to another object, but are not GroupDecorators. Several groups may forward to one
/// object.
class HOOKLINE_EXPORT ForwardingGroup {
 public:
  virtual ~ForwardingGroup();
  /// Returns the same value for all groups that forward to the same object.
  virtual const void* target() const noexcept = 0;
};

/// Returns a value that is equal for two groups if a collective on one matches the same collective on the other. This
/// holds for a group and its wrappers, and for all conversions of one torch group. Valid while `group` lives.
HOOKLINE_EXPORT const void* identity_of(const ProcessGroup& group);

}  // namespace hookline::group
