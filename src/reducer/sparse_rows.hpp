// Row-sparse gradients: alignment to the union of all ranks' rows.
#pragma once

#include <memory>
#include <vector>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/core/future.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/reducer/parameter.hpp>

namespace hookline::reducer {

/// Returns the union of all ranks' rows, ascending, with this rank's values, zero for rows it does not have. Every rank
/// of the group calls it for the same parameter. Indices and values must be contiguous and valid for the parameter.
HOOKLINE_EXPORT Future<SparseGradient> union_rows(std::shared_ptr<ProcessGroup> group,
                                                  std::vector<SparseGradient> gradients, Tensor parameter);

/// Returns a bucket that consists of these rows.
HOOKLINE_EXPORT GradBucket sparse_bucket(std::size_t index, std::size_t bucket_count, const SparseGradient& rows,
                                         const Tensor& parameter);

}  // namespace hookline::reducer
