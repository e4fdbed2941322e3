// The named methods of ProcessGroup, each of which builds an Operation and passes it to run().
#include <hookline/group/process_group.hpp>

#include <algorithm>
#include <tuple>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

template <class Options>
Operation make_operation(OpType type, std::vector<Tensor> inputs, std::vector<Tensor> outputs, const Options& options) {
  Operation c;
  c.type = type;
  c.inputs = std::move(inputs);
  c.outputs = std::move(outputs);
  c.timeout = options.timeout;
  if constexpr (requires { options.op; }) c.op = options.op;
  if constexpr (requires { options.root; }) c.root = options.root;
  if constexpr (requires { options.tag; }) c.tag = options.tag;
  return c;
}

// Builds an operation that reads and writes one tensor. Avoids a temporary list, because small allreduces are frequent.
template <class Options>
Operation make_in_place_operation(OpType type, const Tensor& tensor, const Options& options) {
  Operation c = make_operation(type, {}, {}, options);
  c.outputs.assign(1, tensor);
  return c;
}

Operation make_p2p_operation(OpType type, const Tensor& tensor, int peer, const P2POptions& options) {
  Operation c =
      type == OpType::send ? make_operation(type, {tensor}, {}, options) : make_operation(type, {}, {tensor}, options);
  c.root = peer;
  return c;
}

}  // namespace

ProcessGroup::~ProcessGroup() = default;

WorkPtr ProcessGroup::allreduce(const Tensor& tensor, const AllreduceOptions& options) {
  return run(make_in_place_operation(OpType::allreduce, tensor, options));
}

WorkPtr ProcessGroup::allreduce(const std::vector<Tensor>& tensors, const AllreduceOptions& options) {
  return run(make_operation(OpType::allreduce, {}, tensors, options));
}

WorkPtr ProcessGroup::allreduce_coalesced(const std::vector<Tensor>& tensors, const AllreduceOptions& options) {
  return run(make_operation(OpType::allreduce_coalesced, {}, tensors, options));
}

WorkPtr ProcessGroup::reduce(const Tensor& tensor, const ReduceOptions& options) {
  return run(make_in_place_operation(OpType::reduce, tensor, options));
}

WorkPtr ProcessGroup::broadcast(const Tensor& tensor, const BroadcastOptions& options) {
  return run(make_in_place_operation(OpType::broadcast, tensor, options));
}

WorkPtr ProcessGroup::allgather(std::vector<Tensor> outputs, const Tensor& input, const AllgatherOptions& options) {
  return run(make_operation(OpType::allgather, {input}, std::move(outputs), options));
}

WorkPtr ProcessGroup::allgather_into_tensor(const Tensor& output, const Tensor& input,
                                            const AllgatherOptions& options) {
  return run(make_operation(OpType::allgather_into_tensor, {input}, {output}, options));
}

WorkPtr ProcessGroup::allgather_coalesced(const std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor> inputs,
                                          const AllgatherOptions& options) {
  std::vector<Tensor> flat;
  for (const auto& list : outputs) {
    if (list.size() != inputs.size()) {
      throw InvalidArgument(
          fmt::format("allgather_coalesced on rank {} of {}: expected {} tensors in each output list, got {}", rank(),
                      size(), inputs.size(), list.size()));
    }
    flat.insert(flat.end(), list.begin(), list.end());
  }
  return run(make_operation(OpType::allgather_coalesced, std::move(inputs), std::move(flat), options));
}

WorkPtr ProcessGroup::allgather_into_tensor_coalesced(std::vector<Tensor> outputs, std::vector<Tensor> inputs,
                                                      const AllgatherOptions& options) {
  return run(make_operation(OpType::allgather_into_tensor_coalesced, std::move(inputs), std::move(outputs), options));
}

WorkPtr ProcessGroup::gather(std::vector<Tensor> outputs, const Tensor& input, const GatherOptions& options) {
  return run(make_operation(OpType::gather, {input}, std::move(outputs), options));
}

WorkPtr ProcessGroup::scatter(const Tensor& output, std::vector<Tensor> inputs, const ScatterOptions& options) {
  return run(make_operation(OpType::scatter, std::move(inputs), {output}, options));
}

WorkPtr ProcessGroup::reduce_scatter(const Tensor& output, std::vector<Tensor> inputs,
                                     const ReduceScatterOptions& options) {
  return run(make_operation(OpType::reduce_scatter, std::move(inputs), {output}, options));
}

WorkPtr ProcessGroup::reduce_scatter_tensor(const Tensor& output, const Tensor& input,
                                            const ReduceScatterOptions& options) {
  return run(make_operation(OpType::reduce_scatter_tensor, {input}, {output}, options));
}

WorkPtr ProcessGroup::reduce_scatter_tensor_coalesced(std::vector<Tensor> outputs, std::vector<Tensor> inputs,
                                                      const ReduceScatterOptions& options) {
  return run(make_operation(OpType::reduce_scatter_tensor_coalesced, std::move(inputs), std::move(outputs), options));
}

WorkPtr ProcessGroup::alltoall(std::vector<Tensor> outputs, std::vector<Tensor> inputs,
                               const AlltoallOptions& options) {
  return run(make_operation(OpType::alltoall, std::move(inputs), std::move(outputs), options));
}

WorkPtr ProcessGroup::alltoall_base(const Tensor& output, const Tensor& input, std::vector<std::int64_t> output_splits,
                                    std::vector<std::int64_t> input_splits, const AlltoallOptions& options) {
  Operation c = make_operation(OpType::alltoall_base, {input}, {output}, options);
  c.output_splits = std::move(output_splits);
  c.input_splits = std::move(input_splits);
  return run(std::move(c));
}

WorkPtr ProcessGroup::send(const Tensor& tensor, int target, const P2POptions& options) {
  return run(make_p2p_operation(OpType::send, tensor, target, options));
}

WorkPtr ProcessGroup::recv(const Tensor& tensor, int source, const P2POptions& options) {
  return run(make_p2p_operation(OpType::recv, tensor, source, options));
}

WorkPtr ProcessGroup::recv_anysource(const Tensor& tensor, const P2POptions& options) {
  return run(make_p2p_operation(OpType::recv_anysource, tensor, kAnySource, options));
}

WorkPtr ProcessGroup::barrier(const BarrierOptions& options) {
  return run(make_operation(OpType::barrier, {}, {}, options));
}

void ProcessGroup::monitored_barrier(const MonitoredBarrierOptions& options) {
  Operation c = make_operation(OpType::monitored_barrier, {}, {}, options);
  c.wait_all_ranks = options.wait_all_ranks;
  run(std::move(c))->wait();
}

std::string ProcessGroup::description() const {
  return backend_name() + " group, rank " + std::to_string(rank()) + " of " + std::to_string(size());
}

void ProcessGroup::start_coalescing() {
  throw Unsupported("the " + backend_name() + " group does not support coalescing; use the *_coalesced operations");
}

WorkPtr ProcessGroup::end_coalescing() {
  throw Unsupported("the " + backend_name() + " group does not support coalescing; use the *_coalesced operations");
}

Tensor ProcessGroup::empty(const Dims& shape, DType dtype) { return Tensor::empty(shape, dtype); }

std::shared_ptr<ProcessGroup> ProcessGroup::new_group(const std::vector<int>&) {
  throw Unsupported("the " + backend_name() + " group does not support subgroups");
}

std::shared_ptr<ProcessGroup> ProcessGroup::split(int color, int key) {
  // The tensors own their memory: Ctrl-C ends the wait, not the operation that writes to them.
  const std::vector<std::int64_t> mine = {color, key};
  const Tensor gathered = Tensor::empty({2 * size()}, DType::i64);
  allgather_into_tensor(gathered, Tensor::borrow(mine).clone())->wait();
  const auto* const all = gathered.data<const std::int64_t>();

  // new_group is collective, so every rank creates every group and keeps its own.
  struct Member {
    std::int64_t color, key;
    int rank;
  };
  std::vector<Member> members;
  for (int r = 0; r < size(); ++r) {
    const auto i = 2 * static_cast<std::size_t>(r);
    if (all[i] >= 0) members.push_back({all[i], all[i + 1], r});
  }
  std::sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    return std::tie(a.color, a.key, a.rank) < std::tie(b.color, b.key, b.rank);
  });
  std::shared_ptr<ProcessGroup> own;
  for (auto first = members.begin(); first != members.end();) {
    std::vector<int> ranks;
    const std::int64_t group_color = first->color;
    for (; first != members.end() && first->color == group_color; ++first) ranks.push_back(first->rank);
    auto group = new_group(ranks);
    if (group) own = std::move(group);
  }
  return own;
}

void ProcessGroup::set_timeout(Milliseconds) {
  throw Unsupported("the " + backend_name() + " group does not support set_timeout(); pass a timeout to each call");
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): overrides store both
void ProcessGroup::register_on_completion_hook(OnCompletionHook, std::shared_ptr<Executor>) {
  throw Unsupported("the " + backend_name() + " group does not support completion hooks");
}

void ProcessGroup::wait_for_hooks(std::optional<Milliseconds>) {}

void ProcessGroup::abort(const std::string&) {
  throw Unsupported("the " + backend_name() + " group does not support abort()");
}

}  // namespace hookline
