// Fallback collectives: broadcast and allgather for groups that support only allreduce.
#pragma once

#include <hookline/group/process_group.hpp>

namespace hookline::reducer {

/// Calls group.broadcast, or, if unsupported, an allreduce in which all ranks but the root contribute zeros. So a
/// Python group that overrides only allreduce can be used for training.
WorkPtr broadcast(ProcessGroup& group, const Tensor& tensor, int root = 0);

/// Calls group.allgather_into_tensor, or, if unsupported, an allreduce in which every rank contributes its slice and
/// zeros elsewhere, so the sums are exact. The tensors must be contiguous.
WorkPtr allgather_into_tensor(ProcessGroup& group, const Tensor& output, const Tensor& input);

}  // namespace hookline::reducer
