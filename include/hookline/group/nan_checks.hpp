// NaN checks: a group wrapper that rejects NaN and infinities before they are sent.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// Wraps `group`: every tensor that this rank sends is checked for NaN and infinities first. A hit throws
/// InvalidArgument naming rank, operation, tensor and index, and aborts the group so that other ranks do not wait.
/// Encoded values are bytes and are not checked, so with a compressing hook only its uncompressed tensors are.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> with_nan_checks(std::shared_ptr<ProcessGroup> group);

}  // namespace hookline
