// NaN checks: a group wrapper that rejects NaN and infinities before they are sent.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// Wraps `group`: every tensor that this rank sends is checked for NaN and infinities first. A NaN or infinity
/// throws InvalidArgument naming rank, operation, tensor and index, and aborts the group so that other ranks do not
/// wait. A compressing hook sends its encoded gradients as bytes, which are not checked.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> with_nan_checks(std::shared_ptr<ProcessGroup> group);

}  // namespace hookline
