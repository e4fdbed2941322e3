// Broadcast and allgather for groups that may have no operation but allreduce.
#pragma once

#include <hookline/group/process_group.hpp>

namespace hookline::reducer {

/// group.broadcast(tensor), or the same as a sum with zeros from all ranks but the root, where the group lacks it. A
/// Python group that overrides allreduce alone can then be trained with.
WorkPtr broadcast(ProcessGroup& group, const Tensor& tensor, int root = 0);

/// group.allgather_into_tensor(output, input), or the same as a sum in which every rank has its part and zeros, so that
/// sums are exact. The tensors are contiguous.
WorkPtr allgather_into_tensor(ProcessGroup& group, const Tensor& output, const Tensor& input);

}  // namespace hookline::reducer
