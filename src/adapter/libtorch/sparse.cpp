// Gathers the elements of all ranks, padded to the longest list, and adds them in rank order.
#include "adapter/libtorch/sparse.hpp"

#include <string>
#include <vector>

#include <ATen/ops/cat.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/zeros.h>

#include <hookline/core/error.hpp>

#include "adapter/libtorch/tensors.hpp"

namespace hookline::libtorch {
namespace {

at::Tensor padded(const at::Tensor& part, std::int64_t dim, std::int64_t length) {
  std::vector<std::int64_t> shape = part.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = length - part.size(dim);
  return at::cat({part, at::zeros(shape, part.options())}, dim).contiguous();
}

Future<std::vector<Tensor>> sum(std::shared_ptr<ProcessGroup> group, at::Tensor tensor, ReduceOp op,
                                AllgatherOptions options) {
  const at::Tensor own = tensor.coalesce();
  const auto ranks = static_cast<std::int64_t>(group->size());
  // The header includes the shape, since equal counts do not imply equal shapes.
  std::vector<std::int64_t> mine = {own._nnz(), own.sparse_dim(), own.dense_dim()};
  for (const std::int64_t extent : own.sizes()) mine.push_back(extent);
  const Tensor header = Tensor::borrow(mine).clone();
  const Tensor headers = Tensor::empty({ranks * header.numel()}, DType::i64);
  const WorkPtr meeting = group->allgather_into_tensor(headers, header, options);
  co_await meeting;
  const auto* const all = headers.data<const std::int64_t>();
  std::int64_t longest = 0;
  std::vector<std::int64_t> counts;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t* const theirs = all + r * header.numel();
    for (std::size_t i = 1; i < mine.size(); ++i) {
      if (theirs[i] != mine[i])
        throw Mismatch("all_reduce of sparse tensors: rank " + std::to_string(r) + " and rank " +
                       std::to_string(group->rank()) + " passed tensors of different shapes");
    }
    counts.push_back(theirs[0]);
    longest = std::max(longest, theirs[0]);
  }

  const at::Tensor indices = padded(own.indices(), 1, longest);
  const at::Tensor values = padded(own.values(), 0, longest);
  std::vector<std::int64_t> shape = indices.sizes().vec();
  shape.insert(shape.begin(), ranks);
  const at::Tensor all_indices = at::zeros(shape, indices.options());
  shape = values.sizes().vec();
  shape.insert(shape.begin(), ranks);
  const at::Tensor all_values = at::zeros(shape, values.options());
  if (longest > 0) {
    const Tensor index_output = view_of(all_indices, "all_reduce", Use::moved, true);
    const Tensor index_input = view_of(indices, "all_reduce", Use::moved, true);
    const WorkPtr first = group->allgather_into_tensor(index_output, index_input, options);
    const Tensor value_output = view_of(all_values, "all_reduce", Use::moved, true);
    const Tensor value_input = view_of(values, "all_reduce", Use::moved, true);
    const WorkPtr second = group->allgather_into_tensor(value_output, value_input, options);
    co_await first;
    co_await second;
  }
  std::vector<at::Tensor> index_parts;
  std::vector<at::Tensor> value_parts;
  for (std::int64_t r = 0; r < ranks; ++r) {
    index_parts.push_back(all_indices.select(0, r).narrow(1, 0, counts[static_cast<std::size_t>(r)]));
    value_parts.push_back(all_values.select(0, r).narrow(0, 0, counts[static_cast<std::size_t>(r)]));
  }
  at::Tensor total = at::sparse_coo_tensor(at::cat(index_parts, 1), at::cat(value_parts, 0), tensor.sizes()).coalesce();
  if (op == ReduceOp::avg) total.div_(ranks);
  tensor.copy_(total);
  co_return std::vector<Tensor>();
}

}  // namespace

WorkPtr sum_sparse(const std::shared_ptr<ProcessGroup>& group, const at::Tensor& tensor, ReduceOp op,
                   std::optional<Milliseconds> timeout) {
  if (op != ReduceOp::sum && op != ReduceOp::avg) {
    throw Unsupported("all_reduce of sparse tensors: unsupported op: expected SUM or AVG, got " +
                      std::string(name(op)));
  }
  AllgatherOptions options;
  options.timeout = timeout;
  return make_work(sum(group, tensor, op, options), OpType::allreduce);
}

}  // namespace hookline::libtorch
