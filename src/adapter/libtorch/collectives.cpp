// The collectives of torch.distributed, each converted into a Call.
#include <algorithm>
#include <utility>

#include "adapter/libtorch/call.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/gil.hpp"
#include "adapter/libtorch/sparse.hpp"

namespace hookline::libtorch {
namespace {

const std::vector<at::Tensor> kNoTensors;

/// Throws InvalidArgument, converted for torch.
[[noreturn]] void throw_invalid(const char* operation, const std::string& why) {
  std::rethrow_exception(to_torch_error(std::make_exception_ptr(InvalidArgument(std::string(operation) + ": " + why))));
}

const at::Tensor& single(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.size() != 1) {
    throw_invalid(operation, "expected 1 tensor, got " + std::to_string(tensors.size()) +
                                 ". Use the coalesced operation for several tensors");
  }
  return tensors[0];
}

const std::vector<at::Tensor>& single(const std::vector<std::vector<at::Tensor>>& lists, const char* operation) {
  if (lists.size() != 1) {
    throw_invalid(operation, "expected 1 list of tensors, got " + std::to_string(lists.size()));
  }
  return lists[0];
}

/// Throws unless torch's index of the root tensor is 0, because each rank passes one tensor.
void check_root_tensor(std::int64_t number, const char* operation) {
  if (number != 0) throw_invalid(operation, "root tensor out of range: expected 0, got " + std::to_string(number));
}

void check_absent(bool present, const char* what, std::int64_t root, const char* operation) {
  if (present) {
    throw_invalid(operation, "expected no " + std::string(what) + " on a rank that is not the root; the root is rank " +
                                 std::to_string(root));
  }
}

bool same_tensor(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) ||
         (a.layout() == at::kStrided && b.layout() == at::kStrided && a.const_data_ptr() == b.const_data_ptr() &&
          a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides());
}

/// Removes repeated tensors, keeping the order.
std::vector<at::Tensor> unique_tensors(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> unique;
  for (const at::Tensor& tensor : tensors) {
    const auto already_listed = [&](const at::Tensor& other) {
      return tensor.numel() > 0 && same_tensor(tensor, other);
    };
    if (std::none_of(unique.begin(), unique.end(), already_listed)) unique.push_back(tensor);
  }
  return unique;
}

}  // namespace

TorchBackend::WorkHandle TorchBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  single(tensors, "all_reduce");
  return start({OpType::allreduce, "hookline:all_reduce", tensors, tensors, opts.timeout, opts.asyncOp, opts.reduceOp});
}

TorchBackend::WorkHandle TorchBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return with_torch_errors([&] {
    const ReduceOp op = to_reduce_op(opts.reduceOp, "all_reduce");
    WorkPtr work = sum_sparse(group_, single(tensors, "all_reduce"), op, optional_timeout(opts.timeout));
    // Blocks even for asyncOp: the sum is several operations, and the caller's next operation could otherwise be
    // ordered between them differently on each rank.
    Call call{OpType::allreduce, "hookline:all_reduce_sparse", tensors, tensors, opts.timeout, opts.asyncOp};
    return wrap(std::move(call), std::move(work), !coalescing_);
  });
}

TorchBackend::WorkHandle TorchBackend::allreduce_coalesced(Tensors& tensors,
                                                           const c10d::AllreduceCoalescedOptions& opts) {
  const Tensors unique = unique_tensors(tensors);
  return start_coalesced({.type = OpType::allreduce_coalesced,
                          .title = "hookline:all_reduce_coalesced",
                          .inputs = unique,
                          .outputs = unique,
                          .timeout = opts.timeout,
                          .async = opts.asyncOp,
                          .op = opts.reduceOp,
                          .result = &tensors});
}

TorchBackend::WorkHandle TorchBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  single(tensors, "broadcast");
  check_root_tensor(opts.rootTensor, "broadcast");
  return start({.type = OpType::broadcast,
                .title = "hookline:broadcast",
                .inputs = tensors,
                .outputs = tensors,
                .timeout = opts.timeout,
                .async = opts.asyncOp,
                .root = opts.rootRank});
}

TorchBackend::WorkHandle TorchBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  single(tensors, "reduce");
  check_root_tensor(opts.rootTensor, "reduce");
  return start(
      {OpType::reduce, "hookline:reduce", tensors, tensors, opts.timeout, opts.asyncOp, opts.reduceOp, opts.rootRank});
}

TorchBackend::WorkHandle TorchBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  const Tensors& all = single(outputs, "all_gather");
  single(inputs, "all_gather");
  return start({OpType::allgather, "hookline:all_gather", inputs, all, opts.timeout, opts.asyncOp});
}

TorchBackend::WorkHandle TorchBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                                       const c10d::AllgatherOptions& opts) {
  const Tensors inputs{input};
  const Tensors outputs{output};
  return start(
      {OpType::allgather_into_tensor, "hookline:_all_gather_base", inputs, outputs, opts.timeout, opts.asyncOp});
}

TorchBackend::WorkHandle TorchBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                                           const c10d::AllgatherOptions& opts) {
  if (outputs.size() != static_cast<std::size_t>(getSize())) {
    throw_invalid("all_gather_coalesced", "expected " + std::to_string(getSize()) +
                                              " lists of outputs, one for each rank, got " +
                                              std::to_string(outputs.size()));
  }
  Tensors flat;
  for (const Tensors& list : outputs) {
    if (list.size() != inputs.size()) {
      throw_invalid("all_gather_coalesced", "wrong list of outputs: expected " + std::to_string(inputs.size()) +
                                                " tensors, one for each input, got " + std::to_string(list.size()));
    }
    flat.insert(flat.end(), list.begin(), list.end());
  }
  return start_coalesced(
      {OpType::allgather_coalesced, "hookline:all_gather_coalesced", inputs, flat, opts.timeout, opts.asyncOp});
}

TorchBackend::WorkHandle TorchBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::AllgatherOptions& opts) {
  return start_coalesced({OpType::allgather_into_tensor_coalesced, "hookline:all_gather_into_tensor_coalesced", inputs,
                          outputs, opts.timeout, opts.asyncOp});
}

TorchBackend::WorkHandle TorchBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  const bool root = opts.rootRank == getRank();
  const Tensors& all = root ? single(outputs, "gather") : kNoTensors;
  single(inputs, "gather");
  check_absent(!root && !outputs.empty(), "outputs", opts.rootRank, "gather");
  return start({.type = OpType::gather,
                .title = "hookline:gather",
                .inputs = inputs,
                .outputs = all,
                .timeout = opts.timeout,
                .async = opts.asyncOp,
                .root = opts.rootRank});
}

TorchBackend::WorkHandle TorchBackend::scatter(Tensors& outputs, TensorLists& inputs,
                                               const c10d::ScatterOptions& opts) {
  const bool root = opts.rootRank == getRank();
  const Tensors& all = root ? single(inputs, "scatter") : kNoTensors;
  single(outputs, "scatter");
  check_absent(!root && !inputs.empty(), "inputs", opts.rootRank, "scatter");
  return start({.type = OpType::scatter,
                .title = "hookline:scatter",
                .inputs = all,
                .outputs = outputs,
                .timeout = opts.timeout,
                .async = opts.asyncOp,
                .root = opts.rootRank});
}

TorchBackend::WorkHandle TorchBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                                      const c10d::ReduceScatterOptions& opts) {
  const Tensors& all = single(inputs, "reduce_scatter");
  single(outputs, "reduce_scatter");
  Call call{OpType::reduce_scatter, "hookline:reduce_scatter", all, outputs, opts.timeout, opts.asyncOp, opts.reduceOp};
  const auto same_size = [&](const at::Tensor& t) { return t.numel() == all[0].numel(); };
  if (!std::all_of(all.begin(), all.end(), same_size)) return start_uneven_reduce_scatter(std::move(call));
  return start(std::move(call));
}

TorchBackend::WorkHandle TorchBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                                            const c10d::ReduceScatterOptions& opts) {
  const Tensors inputs{input};
  const Tensors outputs{output};
  return start({OpType::reduce_scatter_tensor, "hookline:_reduce_scatter_base", inputs, outputs, opts.timeout,
                opts.asyncOp, opts.reduceOp});
}

TorchBackend::WorkHandle TorchBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                                       const c10d::ReduceScatterOptions& opts) {
  return start_coalesced({OpType::reduce_scatter_tensor_coalesced, "hookline:reduce_scatter_tensor_coalesced", inputs,
                          outputs, opts.timeout, opts.asyncOp, opts.reduceOp});
}

TorchBackend::WorkHandle TorchBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  return start({OpType::alltoall, "hookline:all_to_all", inputs, outputs, opts.timeout, opts.asyncOp});
}

TorchBackend::WorkHandle TorchBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                                     std::vector<int64_t>& output_splits,
                                                     std::vector<int64_t>& input_splits,
                                                     const c10d::AllToAllOptions& opts) {
  const Tensors inputs{input};
  const Tensors outputs{output};
  return start({.type = OpType::alltoall_base,
                .title = "hookline:all_to_all_single",
                .inputs = inputs,
                .outputs = outputs,
                .timeout = opts.timeout,
                .async = opts.asyncOp,
                .input_splits = input_splits,
                .output_splits = output_splits});
}

TorchBackend::WorkHandle TorchBackend::start_p2p(OpType type, const char* title, const Tensors& tensors, int peer,
                                                 int tag) {
  const bool is_send = type == OpType::send;
  single(tensors, is_send ? "send" : "recv");
  return start({.type = type,
                .title = title,
                .inputs = is_send ? tensors : kNoTensors,
                .outputs = is_send ? kNoTensors : tensors,
                .timeout = c10d::kUnsetTimeout,
                .async = true,
                .root = peer,
                .tag = tag});
}

TorchBackend::WorkHandle TorchBackend::send(Tensors& tensors, int target, int tag) {
  return start_p2p(OpType::send, "hookline:send", tensors, target, tag);
}

TorchBackend::WorkHandle TorchBackend::recv(Tensors& tensors, int source, int tag) {
  return start_p2p(OpType::recv, "hookline:recv", tensors, source, tag);
}

TorchBackend::WorkHandle TorchBackend::recvAnysource(Tensors& tensors, int tag) {
  return start_p2p(OpType::recv_anysource, "hookline:recvAnySource", tensors, kAnySource, tag);
}

TorchBackend::WorkHandle TorchBackend::barrier(const c10d::BarrierOptions& opts) {
  return start({OpType::barrier, "hookline:barrier", kNoTensors, kNoTensors, opts.timeout, opts.asyncOp});
}

void TorchBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  with_torch_errors([&] {
    const Interruptible interruptible;
    MonitoredBarrierOptions options;
    options.timeout = optional_timeout(opts.timeout);
    options.wait_all_ranks = wait_all_ranks;
    group_->monitored_barrier(options);
  });
}

}  // namespace hookline::libtorch
