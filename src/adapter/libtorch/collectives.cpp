// The collectives of torch.distributed, each converted into a Call.
#include <algorithm>
#include <utility>

#include "adapter/libtorch/call.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/sparse.hpp"
#include "adapter/libtorch/waiting.hpp"

namespace hookline::libtorch {
namespace {

const std::vector<at::Tensor> kNone;

/// Throws InvalidArgument, converted for torch.
[[noreturn]] void refuse(const char* operation, const std::string& why) {
  std::rethrow_exception(for_torch(std::make_exception_ptr(InvalidArgument(std::string(operation) + ": " + why))));
}

const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* operation) {
  if (tensors.size() != 1) {
    refuse(operation, "expected 1 tensor, got " + std::to_string(tensors.size()) +
                          ". Use the coalesced operation for several tensors");
  }
  return tensors[0];
}

const std::vector<at::Tensor>& only(const std::vector<std::vector<at::Tensor>>& lists, const char* operation) {
  if (lists.size() != 1) {
    refuse(operation, "expected 1 list of tensors, got " + std::to_string(lists.size()));
  }
  return lists[0];
}

/// Checks torch's index of the root tensor; a rank has one tensor.
void check_root_tensor(std::int64_t number, const char* operation) {
  if (number != 0) refuse(operation, "root tensor out of range: expected 0, got " + std::to_string(number));
}

void check_none(bool any, const char* what, std::int64_t root, const char* operation) {
  if (any) {
    refuse(operation, "expected no " + std::string(what) + " on a rank that is not the root; the root is rank " +
                          std::to_string(root));
  }
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.is_same(b) ||
         (a.layout() == at::kStrided && b.layout() == at::kStrided && a.const_data_ptr() == b.const_data_ptr() &&
          a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides());
}

/// Removes repeated tensors, keeping the order.
std::vector<at::Tensor> without_repeats(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> once;
  for (const at::Tensor& tensor : tensors) {
    const auto known = [&](const at::Tensor& other) { return tensor.numel() > 0 && same(tensor, other); };
    if (std::none_of(once.begin(), once.end(), known)) once.push_back(tensor);
  }
  return once;
}

}  // namespace

TorchBackend::WorkHandle TorchBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, opts);
  only(tensors, "all_reduce");
  return start({OpType::allreduce, "hookline:all_reduce", tensors, tensors, opts.timeout, opts.asyncOp, opts.reduceOp});
}

TorchBackend::WorkHandle TorchBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return called_by_torch([&] {
    const ReduceOp op = op_of(opts.reduceOp, "all_reduce");
    WorkPtr work = sum_sparse(group_, only(tensors, "all_reduce"), op, time_of(opts.timeout));
    // Blocks even for asyncOp: the sum is several operations, and the caller's next operation could otherwise be
    // ordered between them differently on each rank.
    Call call{OpType::allreduce, "hookline:all_reduce_sparse", tensors, tensors, opts.timeout, opts.asyncOp};
    return wrap(std::move(call), std::move(work), !coalescing_);
  });
}

TorchBackend::WorkHandle TorchBackend::allreduce_coalesced(Tensors& tensors,
                                                           const c10d::AllreduceCoalescedOptions& opts) {
  const Tensors once = without_repeats(tensors);
  return start_coalesced({.type = OpType::allreduce_coalesced,
                          .title = "hookline:all_reduce_coalesced",
                          .inputs = once,
                          .outputs = once,
                          .timeout = opts.timeout,
                          .async = opts.asyncOp,
                          .op = opts.reduceOp,
                          .result = &tensors});
}

TorchBackend::WorkHandle TorchBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  only(tensors, "broadcast");
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
  only(tensors, "reduce");
  check_root_tensor(opts.rootTensor, "reduce");
  return start(
      {OpType::reduce, "hookline:reduce", tensors, tensors, opts.timeout, opts.asyncOp, opts.reduceOp, opts.rootRank});
}

TorchBackend::WorkHandle TorchBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                                 const c10d::AllgatherOptions& opts) {
  const Tensors& all = only(outputs, "all_gather");
  only(inputs, "all_gather");
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
    refuse("all_gather_coalesced", "expected " + std::to_string(getSize()) +
                                       " lists of outputs, one for each rank, got " + std::to_string(outputs.size()));
  }
  Tensors flat;
  for (const Tensors& list : outputs) {
    if (list.size() != inputs.size()) {
      refuse("all_gather_coalesced", "wrong list of outputs: expected " + std::to_string(inputs.size()) +
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
  const Tensors& all = root ? only(outputs, "gather") : kNone;
  only(inputs, "gather");
  check_none(!root && !outputs.empty(), "outputs", opts.rootRank, "gather");
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
  const Tensors& all = root ? only(inputs, "scatter") : kNone;
  only(outputs, "scatter");
  check_none(!root && !inputs.empty(), "inputs", opts.rootRank, "scatter");
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
  const Tensors& all = only(inputs, "reduce_scatter");
  only(outputs, "reduce_scatter");
  Call call{OpType::reduce_scatter, "hookline:reduce_scatter", all, outputs, opts.timeout, opts.asyncOp, opts.reduceOp};
  const auto as_large = [&](const at::Tensor& t) { return t.numel() == all[0].numel(); };
  if (!std::all_of(all.begin(), all.end(), as_large)) return start_uneven_reduce_scatter(std::move(call));
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

TorchBackend::WorkHandle TorchBackend::start_message(OpType type, const char* title, const Tensors& tensors, int peer,
                                                     int tag) {
  const bool sends = type == OpType::send;
  only(tensors, sends ? "send" : "recv");
  return start({.type = type,
                .title = title,
                .inputs = sends ? tensors : kNone,
                .outputs = sends ? kNone : tensors,
                .timeout = c10d::kUnsetTimeout,
                .async = true,
                .root = peer,
                .tag = tag});
}

TorchBackend::WorkHandle TorchBackend::send(Tensors& tensors, int target, int tag) {
  return start_message(OpType::send, "hookline:send", tensors, target, tag);
}

TorchBackend::WorkHandle TorchBackend::recv(Tensors& tensors, int source, int tag) {
  return start_message(OpType::recv, "hookline:recv", tensors, source, tag);
}

TorchBackend::WorkHandle TorchBackend::recvAnysource(Tensors& tensors, int tag) {
  return start_message(OpType::recv_anysource, "hookline:recvAnySource", tensors, kAnySource, tag);
}

TorchBackend::WorkHandle TorchBackend::barrier(const c10d::BarrierOptions& opts) {
  return start({OpType::barrier, "hookline:barrier", kNone, kNone, opts.timeout, opts.asyncOp});
}

void TorchBackend::monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) {
  called_by_torch([&] {
    const Interruptible interruptible;
    MonitoredBarrierOptions options;
    options.timeout = time_of(opts.timeout);
    options.wait_all_ranks = wait_all_ranks;
    group_->monitored_barrier(options);
  });
}

}  // namespace hookline::libtorch
