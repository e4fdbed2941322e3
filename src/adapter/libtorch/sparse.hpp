// The sum of sparse tensors over the ranks of a group.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include <hookline/group/process_group.hpp>

namespace hookline::libtorch {

/// Puts the sum (or with avg the mean) of all ranks' tensors into `tensor`, coalesced. They may differ in which
/// elements they have, not in shape. Unsupported for another op.
WorkPtr sum_sparse(const std::shared_ptr<ProcessGroup>& group, const at::Tensor& tensor, ReduceOp op,
                   std::optional<Milliseconds> timeout);

}  // namespace hookline::libtorch
