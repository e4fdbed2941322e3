// Allreduce of sparse tensors.
#pragma once

#include <memory>
#include <optional>

#include <ATen/core/Tensor.h>

#include <hookline/group/process_group.hpp>

namespace hookline::libtorch {

/// Replaces `tensor` by the sum, or with avg the mean, of all ranks' tensors, coalesced. Indices may differ between
/// ranks, shapes may not. Throws Unsupported for other ops.
WorkPtr sum_sparse(const std::shared_ptr<ProcessGroup>& group, const at::Tensor& tensor, ReduceOp op,
                   std::optional<Milliseconds> timeout);

}  // namespace hookline::libtorch
