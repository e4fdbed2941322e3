// Gradients of few rows, which are others on every rank, brought to the same rows.
#pragma once

#include <memory>
#include <vector>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/core/future.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/reducer/parameter.hpp>

namespace hookline::reducer {

/// The rows that any rank has, ascending, with this rank's values: zero where it has no such row. Every rank of the
/// group calls it for the same parameter. Indices and values of the parts are contiguous and fit the parameter.
HOOKLINE_EXPORT Future<SparseGradient> union_rows(std::shared_ptr<ProcessGroup> group,
                                                  std::vector<SparseGradient> gradients, Tensor parameter);

/// A bucket of such rows alone, which a hook sees like any other.
HOOKLINE_EXPORT GradBucket sparse_bucket(std::size_t index, std::size_t bucket_count, const SparseGradient& rows,
                                         const Tensor& parameter);

}  // namespace hookline::reducer
