// Many tensors from one rank to all, in few operations.
#pragma once

#include <cstddef>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

inline constexpr std::size_t kBroadcastBytes = std::size_t{250} << 20;

/// Copies the root's tensors into those of every rank. Dtypes and layouts may be mixed; ranks may differ in layout but
/// not in shapes, dtypes and order: Mismatch otherwise. Tensors are packed into buffers of at most `buffer_size` bytes;
/// large contiguous ones are sent from where they lie, in pieces of that size. At most two are in flight. Returns when
/// all is there. Throws InvalidArgument for a buffer of no bytes or a root that is no rank.
HOOKLINE_EXPORT void broadcast_coalesced(ProcessGroup& group, const std::vector<Tensor>& tensors,
                                         std::size_t buffer_size = kBroadcastBytes, int root = 0);

}  // namespace hookline
