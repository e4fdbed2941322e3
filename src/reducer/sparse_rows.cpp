// The ranks tell each other their rows, and each makes room for those of all.
#include "reducer/sparse_rows.hpp"

#include <algorithm>
#include <map>

#include <hookline/core/error.hpp>

#include "kernel/reduce.hpp"
#include "reducer/by_allreduce.hpp"

namespace hookline::reducer {
namespace {

/// Adds row `from` of one tensor to row `to` of another.
void add_row(const Tensor& target, std::int64_t to, const Tensor& source, std::int64_t from) {
  const Tensor sum = target.slice(0, to, to + 1);
  const Tensor part = source.slice(0, from, from + 1);
  kernel::add(sum.dtype(), sum.mutable_bytes(), part.bytes(), static_cast<std::size_t>(sum.numel()));
}

}  // namespace

Future<SparseGradient> unite_rows(std::shared_ptr<ProcessGroup> group, std::vector<SparseGradient> parts,
                                  Tensor parameter) {
  const auto ranks = static_cast<std::size_t>(group->size());
  std::map<std::int64_t, std::int64_t> rows;  // to their place in the union
  for (const SparseGradient& part : parts) {
    for (std::int64_t i = 0; i < part.indices.numel(); ++i) rows[part.indices.data<const std::int64_t>()[i]] = 0;
  }
  const Tensor mine = Tensor::full({1}, static_cast<double>(rows.size()), DType::i64);
  const Tensor counts = Tensor::empty({static_cast<std::int64_t>(ranks)}, DType::i64);
  const WorkPtr counting = allgather_into_tensor(*group, counts, mine);
  co_await counting;
  std::int64_t most = 0;
  for (std::size_t r = 0; r < ranks; ++r) {
    const std::int64_t count = counts.data<const std::int64_t>()[r];
    if (count < 0 || count > parameter.shape()[0]) throw Mismatch("a rank has more sparse rows than the parameter");
    most = std::max(most, count);
  }
  if (most > 0) {
    // Padded with -1, which is no row.
    const Tensor own = Tensor::full({most}, -1, DType::i64);
    std::size_t at = 0;
    for (const auto& [row, place] : rows) own.data<std::int64_t>()[at++] = row;
    const Tensor all = Tensor::empty({most * static_cast<std::int64_t>(ranks)}, DType::i64);
    const WorkPtr gathering = allgather_into_tensor(*group, all, own);
    co_await gathering;
    for (std::int64_t i = 0; i < all.numel(); ++i) {
      const std::int64_t row = all.data<const std::int64_t>()[i];
      if (row < -1 || row >= parameter.shape()[0]) throw Mismatch("a rank has a sparse row that the parameter lacks");
      if (row >= 0) rows[row] = 0;
    }
  }
  const auto united = static_cast<std::int64_t>(rows.size());
  Dims shape = parameter.shape();
  shape[0] = united;
  SparseGradient result;
  result.indices = Tensor::empty({united}, DType::i64);
  result.values = group->empty(shape, parameter.dtype());
  result.values.fill(0);
  std::int64_t place = 0;
  for (auto& [row, where] : rows) {
    result.indices.data<std::int64_t>()[place] = row;
    where = place++;
  }
  for (const SparseGradient& part : parts) {
    for (std::int64_t i = 0; i < part.indices.numel(); ++i) {
      add_row(result.values, rows[part.indices.data<const std::int64_t>()[i]], part.values, i);
    }
  }
  co_return result;
}

GradBucket bucket_of_rows(std::size_t index, std::size_t bucket_count, const SparseGradient& rows,
                          const Tensor& parameter) {
  std::vector<Dims> sizes(1, rows.values.shape());
  std::vector<Tensor> tensors(1, parameter);
  auto layout = std::make_shared<const BucketLayout>(layout_of(std::move(sizes), std::move(tensors)));
  return {index, bucket_count, rows.values.flatten(), std::move(layout), rows.indices};
}

}  // namespace hookline::reducer
