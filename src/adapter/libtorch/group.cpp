// Collectives as calls of torch.distributed, and its works as ours.
#include "adapter/libtorch/group.hpp"

#include <functional>
#include <utility>

#include <hookline/group/arguments.hpp>

#include "adapter/callback_pool.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/python_work.hpp"
#include "adapter/libtorch/tensors.hpp"
#include "adapter/libtorch/waiting.hpp"

namespace hookline::libtorch {
namespace {

c10d::ReduceOp torch_op(ReduceOp op) {
  switch (op.kind()) {
    case ReduceOp::Kind::product: return c10d::ReduceOp::PRODUCT;
    case ReduceOp::Kind::min: return c10d::ReduceOp::MIN;
    case ReduceOp::Kind::max: return c10d::ReduceOp::MAX;
    case ReduceOp::Kind::band: return c10d::ReduceOp::BAND;
    case ReduceOp::Kind::bor: return c10d::ReduceOp::BOR;
    case ReduceOp::Kind::bxor: return c10d::ReduceOp::BXOR;
    case ReduceOp::Kind::sum:
    case ReduceOp::Kind::avg:  // divided afterwards: not every backend has it
    case ReduceOp::Kind::premul_sum: break;
  }
  return c10d::ReduceOp::SUM;
}

template <class Options>
Options options_of(const Collective& c) {
  Options options;
  if (c.timeout) options.timeout = *c.timeout;
  if constexpr (requires { options.reduceOp; }) options.reduceOp = torch_op(c.op);
  if constexpr (requires { options.rootRank; }) options.rootRank = c.root;
  return options;
}

/// What an operation ends with: the outputs, or the error.
class Completion {
 public:
  Completion(Collective collective, int size) : collective_(std::move(collective)), size_(size) {}

  Future<std::vector<Tensor>> future() const { return promise_.get_future(); }

  void end(const std::exception_ptr& error) {
    if (error) {
      promise_.try_set_error(from_torch(error));
      return;
    }
    if (collective_.op == ReduceOp::avg) {
      for (const Tensor& output : collective_.outputs) output *= 1.0 / size_;
    }
    promise_.try_set_value(collective_.outputs);
  }

 private:
  const Collective collective_;  // with the tensors, which live until then
  const int size_;
  Promise<std::vector<Tensor>> promise_;
};

/// Has the completion end with the work: through its future, or where it has none by a thread that waits.
void end_with(const c10::intrusive_ptr<c10d::Work>& work, const std::shared_ptr<Completion>& completion) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = future_of_work(work);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const std::exception&) {  // a work of a Python class, or of a backend without futures
  }
  if (future) {
    future->addCallback([completion, work](c10::ivalue::Future& done) {
      completion->end(done.hasError() ? done.exception_ptr() : exception_in(done.constValue()));
    });
    return;
  }
  adapter::CallbackPool::instance().post([completion, work] {
    std::exception_ptr error;
    try {
      work->wait();
    } catch (...) {
      error = std::current_exception();
    }
    completion->end(error);
  });
}

}  // namespace

TorchGroup::TorchGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<void> owner)
    : group_(std::move(group)),
      owner_(std::move(owner)),
      rank_(calling_torch([&] { return group_->getRank(); })),
      size_(calling_torch([&] { return group_->getSize(); })),
      name_(calling_torch([&] { return group_->getBackendName(); })) {}

TorchGroup::~TorchGroup() = default;

std::string TorchGroup::group_name() const {
  return calling_torch([&] { return group_->getGroupName(); });
}

WorkPtr TorchGroup::run(Collective collective) {
  check_arguments(collective, rank_, size_);
  if (collective.reader) throw Unsupported("the torch group '" + name_ + "' has no readers of blocks");
  const std::uint64_t number = sequence_.fetch_add(1) + 1;
  const OpType type = collective.type;
  if (collective.op.kind() == ReduceOp::Kind::premul_sum) {
    for (const Tensor& input : sources(collective)) input *= collective.op.factor();
  }
  c10::intrusive_ptr<c10d::Work> work;
  try {
    work = calling_torch([&] { return call(collective); });
  } catch (const Error& e) {
    // What torch says of a Python class that does not have the operation.
    if (std::string_view(e.what()).find("No backend type associated") == std::string_view::npos) throw;
    throw Unsupported("the torch group '" + name_ + "' has no " + std::string(name(type)) + ": " + e.what());
  }
  const auto completion = std::make_shared<Completion>(std::move(collective), size_);
  Future<std::vector<Tensor>> future = completion->future();
  if (work) {
    end_with(work, completion);
  } else if (type == OpType::monitored_barrier) {
    completion->end(nullptr);
  } else {
    throw InvalidArgument(std::string(name(type)) + " of the torch group '" + name_ +
                          "' returned None; it must return a Work");
  }
  return make_work(future, type, number);
}

c10::intrusive_ptr<c10d::Work> TorchGroup::call(const Collective& c) {
  // Some backends want shapes to fit where only the number of elements matters.
  const bool flat = c.type == OpType::allgather_into_tensor || c.type == OpType::allgather_into_tensor_coalesced ||
                    c.type == OpType::reduce_scatter_tensor || c.type == OpType::reduce_scatter_tensor_coalesced;
  const auto convert = [flat](const std::vector<Tensor>& tensors) {
    std::vector<at::Tensor> result;
    for (const Tensor& t : tensors) result.push_back(tensor_of(flat && t.is_contiguous() ? t.flatten() : t));
    return result;
  };
  std::vector<at::Tensor> inputs = convert(c.inputs);
  std::vector<at::Tensor> outputs = convert(c.outputs);
  std::vector<std::vector<at::Tensor>> lists;
  switch (c.type) {
    case OpType::allreduce: return group_->allreduce(outputs, options_of<c10d::AllreduceOptions>(c));
    case OpType::allreduce_coalesced:
      return group_->allreduce_coalesced(outputs, options_of<c10d::AllreduceCoalescedOptions>(c));
    case OpType::reduce: return group_->reduce(outputs, options_of<c10d::ReduceOptions>(c));
    case OpType::broadcast: return group_->broadcast(outputs, options_of<c10d::BroadcastOptions>(c));
    case OpType::allgather:
      lists.push_back(outputs);
      return group_->allgather(lists, inputs, options_of<c10d::AllgatherOptions>(c));
    case OpType::allgather_coalesced: {
      const std::size_t each = inputs.size();
      for (std::size_t i = 0; i < outputs.size(); i += each) {
        const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(i);
        lists.emplace_back(first, first + static_cast<std::ptrdiff_t>(each));
      }
      return group_->allgather_coalesced(lists, inputs, options_of<c10d::AllgatherOptions>(c));
    }
    case OpType::allgather_into_tensor:
      return group_->all_gather_single(outputs[0], inputs[0], options_of<c10d::AllgatherOptions>(c));
    case OpType::allgather_into_tensor_coalesced:
      return group_->all_gather_single_coalesced(outputs, inputs, options_of<c10d::AllgatherOptions>(c));
    case OpType::gather:
      if (rank_ == c.root) lists.push_back(outputs);
      return group_->gather(lists, inputs, options_of<c10d::GatherOptions>(c));
    case OpType::scatter:
      if (rank_ == c.root) lists.push_back(inputs);
      return group_->scatter(outputs, lists, options_of<c10d::ScatterOptions>(c));
    case OpType::reduce_scatter:
      lists.push_back(inputs);
      return group_->reduce_scatter(outputs, lists, options_of<c10d::ReduceScatterOptions>(c));
    case OpType::reduce_scatter_tensor:
      return group_->reduce_scatter_single(outputs[0], inputs[0], options_of<c10d::ReduceScatterOptions>(c));
    case OpType::reduce_scatter_tensor_coalesced:
      return group_->reduce_scatter_single_coalesced(outputs, inputs, options_of<c10d::ReduceScatterOptions>(c));
    case OpType::alltoall: return group_->alltoall(outputs, inputs, options_of<c10d::AllToAllOptions>(c));
    case OpType::alltoall_base: {
      std::vector<std::int64_t> output_splits = c.output_splits;
      std::vector<std::int64_t> input_splits = c.input_splits;
      return group_->all_to_all_single(outputs[0], inputs[0], output_splits, input_splits,
                                       options_of<c10d::AllToAllOptions>(c));
    }
    case OpType::send: return group_->send(inputs, c.root, c.tag);
    case OpType::recv: return group_->recv(outputs, c.root, c.tag);
    case OpType::recv_anysource: return group_->recvAnysource(outputs, c.tag);
    case OpType::barrier: return group_->barrier(options_of<c10d::BarrierOptions>(c));
    case OpType::monitored_barrier: break;
  }
  group_->monitoredBarrier(options_of<c10d::BarrierOptions>(c), c.wait_all_ranks);
  return nullptr;
}

// torch's groups do not tell the others why.
void TorchGroup::abort(const std::string&) {
  calling_torch([&] { group_->abort(); });
}

void TorchGroup::set_timeout(Milliseconds timeout) {
  calling_torch([&] { group_->setTimeout(timeout); });
}

}  // namespace hookline::libtorch
