// A group that refuses to send what is no number.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// A group around `group` that looks for NaN and infinities in everything that this rank would send, before it is sent.
/// The first one is an InvalidArgument at the caller, naming rank, operation, tensor and index; the group is aborted
/// with the same text, so that the other ranks do not wait for this one. What is sent encoded is bytes, in which
/// nothing is found: behind hooks that compress, only what they send as it is.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> nan_checked(std::shared_ptr<ProcessGroup> group);

}  // namespace hookline
