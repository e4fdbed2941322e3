// broadcast_coalesced: broadcasts many tensors with few operations.
#pragma once

#include <cstddef>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

inline constexpr std::size_t kBroadcastBufferBytes = std::size_t{250} << 20;

/// Copies the root's tensors to all ranks and blocks until done. Dtypes and layouts may be mixed. Ranks may differ in
/// layout, but shapes, dtypes and order must match, else it throws Mismatch. Small tensors are packed into buffers of
/// at most `buffer_size` bytes; large contiguous tensors are sent in place in chunks of that size. At most two buffers
/// are in flight. Throws InvalidArgument if `buffer_size` is 0 or the root is out of range.
HOOKLINE_EXPORT void broadcast_coalesced(ProcessGroup& group, const std::vector<Tensor>& tensors,
                                         std::size_t buffer_size = kBroadcastBufferBytes, int root = 0);

}  // namespace hookline
