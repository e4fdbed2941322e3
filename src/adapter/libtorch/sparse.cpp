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

at::Tensor pad_to(const at::Tensor& part, std::int64_t dim, std::int64_t length) {
  std::vector<std::int64_t> shape = part.sizes().vec();
  shape[static_cast<std::size_t>(dim)] = length - part.size(dim);
  return at::cat({part, at::zeros(shape, part.options())}, dim).contiguous();
}

Future<std::vector<Tensor>> allreduce_rows(std::shared_ptr<ProcessGroup> group, at::Tensor tensor, ReduceOp op,
                                           AllgatherOptions options) {
  const at::Tensor own = tensor.coalesce();
  const auto ranks = static_cast<std::int64_t>(group->size());
  // The header includes the shape, since equal counts do not imply equal shapes.
  std::vector<std::int64_t> own_header = {own._nnz(), own.sparse_dim(), own.dense_dim()};
  for (const std::int64_t extent : own.sizes()) own_header.push_back(extent);
  const Tensor header = Tensor::borrow(own_header).clone();
  const Tensor headers = Tensor::empty({ranks * header.numel()}, DType::i64);
  const WorkPtr header_exchange = group->allgather_into_tensor(headers, header, options);
  co_await header_exchange;
  const auto* const all = headers.data<const std::int64_t>();
  std::int64_t max_count = 0;
  std::vector<std::int64_t> counts;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const std::int64_t* const peer_header = all + r * header.numel();
    for (std::size_t i = 1; i < own_header.size(); ++i) {
      if (peer_header[i] != own_header[i])
        throw Mismatch("all_reduce of sparse tensors: rank " + std::to_string(r) + " and rank " +
                       std::to_string(group->rank()) + " passed tensors of different shapes");
    }
    counts.push_back(peer_header[0]);
    max_count = std::max(max_count, peer_header[0]);
  }

  const at::Tensor indices = pad_to(own.indices(), 1, max_count);
  const at::Tensor values = pad_to(own.values(), 0, max_count);
  std::vector<std::int64_t> shape = indices.sizes().vec();
  shape.insert(shape.begin(), ranks);
  const at::Tensor all_indices = at::zeros(shape, indices.options());
  shape = values.sizes().vec();
  shape.insert(shape.begin(), ranks);
  const at::Tensor all_values = at::zeros(shape, values.options());
  if (max_count > 0) {
    const Tensor index_output = view_of(all_indices, "all_reduce", TensorUse::copy, true);
    const Tensor index_input = view_of(indices, "all_reduce", TensorUse::copy, true);
    const WorkPtr first = group->allgather_into_tensor(index_output, index_input, options);
    const Tensor value_output = view_of(all_values, "all_reduce", TensorUse::copy, true);
    const Tensor value_input = view_of(values, "all_reduce", TensorUse::copy, true);
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
  return make_work(allreduce_rows(group, tensor, op, options), OpType::allreduce);
}

}  // namespace hookline::libtorch
