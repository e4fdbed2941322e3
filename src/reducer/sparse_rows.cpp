// Row-sparse gradients: the union of all ranks' rows.
#include "reducer/sparse_rows.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "kernel/reduce.hpp"
#include "reducer/fallback_collectives.hpp"

namespace hookline::reducer {
namespace {

/// Adds row `from` of one tensor to row `to` of another.
void add_row(const Tensor& target, std::int64_t to, const Tensor& source, std::int64_t from) {
  const Tensor target_row = target.slice(0, to, to + 1);
  const Tensor source_row = source.slice(0, from, from + 1);
  kernel::add(target_row.dtype(), target_row.mutable_bytes(), source_row.bytes(),
              static_cast<std::size_t>(target_row.numel()));
}

}  // namespace

Future<SparseGradient> union_rows(std::shared_ptr<ProcessGroup> group, std::vector<SparseGradient> gradients,
                                  Tensor parameter) {
  const auto ranks = static_cast<std::size_t>(group->size());
  std::map<std::int64_t, std::int64_t> rows;  // row index to its position in the union
  for (const SparseGradient& gradient : gradients) {
    for (std::int64_t i = 0; i < gradient.indices.numel(); ++i)
      rows[gradient.indices.data<const std::int64_t>()[i]] = 0;
  }
  const Tensor own_count = Tensor::full({1}, static_cast<double>(rows.size()), DType::i64);
  const Tensor counts = Tensor::empty({static_cast<std::int64_t>(ranks)}, DType::i64);
  const WorkPtr counts_work = allgather_into_tensor(*group, counts, own_count);
  co_await counts_work;
  std::int64_t max_rows = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::int64_t count = counts.data<const std::int64_t>()[r];
    if (count < 0 || count > parameter.shape()[0])
      throw Mismatch(fmt::format("sparse gradient: expected at most {} rows from each rank, got {} from rank {}",
                                 parameter.shape()[0], count, r));
    max_rows = std::max(max_rows, count);
  }
  if (max_rows > 0) {
    // Padded with -1, which is not a row.
    const Tensor own_rows = Tensor::full({max_rows}, -1, DType::i64);
    std::size_t at = 0;
    for (const auto& [row, index] : rows) own_rows.data<std::int64_t>()[at++] = row;
    const Tensor all = Tensor::empty({max_rows * static_cast<std::int64_t>(ranks)}, DType::i64);
    const WorkPtr rows_work = allgather_into_tensor(*group, all, own_rows);
    co_await rows_work;
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      const std::int64_t row = all.data<const std::int64_t>()[i];
      if (row < -1 || row >= parameter.shape()[0])
        throw Mismatch(fmt::format("sparse gradient: expected row indices from 0 to {}, got {} from rank {}",
                                   parameter.shape()[0] - 1, row, i / max_rows));
      if (row >= 0) rows[row] = 0;
    }
  }
  const auto num_rows = static_cast<std::int64_t>(rows.size());
  Dims shape = parameter.shape();
  shape[0] = num_rows;
  SparseGradient result;
  result.indices = Tensor::empty({num_rows}, DType::i64);
  result.values = group->empty(shape, parameter.dtype());
  result.values.fill(0);
  std::int64_t next_index = 0;
  for (auto& [row, index] : rows) {
    result.indices.data<std::int64_t>()[next_index] = row;
    index = next_index++;
  }
  for (const SparseGradient& gradient : gradients) {
    for (std::int64_t i = 0; i < gradient.indices.numel(); ++i) {
      add_row(result.values, rows[gradient.indices.data<const std::int64_t>()[i]], gradient.values, i);
    }
  }
  co_return result;
}

GradBucket sparse_bucket(std::size_t index, std::size_t bucket_count, const SparseGradient& rows,
                         const Tensor& parameter) {
  std::vector<Dims> sizes(1, rows.values.shape());
  std::vector<Tensor> tensors(1, parameter);
  auto layout = std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(tensors)));
  return {index, bucket_count, rows.values.flatten(), std::move(layout), rows.indices};
}

}  // namespace hookline::reducer
