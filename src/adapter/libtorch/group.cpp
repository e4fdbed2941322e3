// Starts collectives on a torch process group, and wraps its works.
#include "adapter/libtorch/group.hpp"

#include <atomic>
#include <string_view>
#include <utility>

#include <hookline/group/arguments.hpp>

#include "adapter/callback_pool.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/python_work.hpp"
#include "adapter/libtorch/staged_call.hpp"
#include "backend/forwarding_work.hpp"
#include "group/wire_bytes.hpp"

namespace hookline::libtorch {
namespace {

template <class Options>
Options options_of(const StagedCall& call) {
  const Operation& c = call.operation();
  Options options;
  if (c.timeout) options.timeout = *c.timeout;
  if constexpr (requires { options.reduceOp; }) options.reduceOp = call.op();
  if constexpr (requires { options.rootRank; }) options.rootRank = c.root;
  return options;
}

/// A receive that reports its source rank once it has completed.
class ReceiveWork final : public backend::ForwardingWork {
 public:
  ReceiveWork(WorkPtr work, std::shared_ptr<const std::atomic<int>> source)
      : ForwardingWork(std::move(work)), source_(std::move(source)) {}

  int source_rank() const override { return source_->load(); }

 private:
  const std::shared_ptr<const std::atomic<int>> source_;
};

/// A work implemented in Python, with both a future and a wait() of its own. wait() calls the Python wait(), which may
/// have side effects such as copying results.
class PythonWork final : public backend::ForwardingWork {
 public:
  PythonWork(WorkPtr work, c10::intrusive_ptr<c10d::Work> python)
      : ForwardingWork(std::move(work)), python_(std::move(python)) {}

  void wait(std::optional<Milliseconds> timeout) override {
    with_hookline_errors([&] { python_->wait(timeout.value_or(kNoTimeout)); });
    ForwardingWork::wait(timeout);
  }

 private:
  const c10::intrusive_ptr<c10d::Work> python_;
};

/// Completes an operation with its outputs or an error.
class OperationCompletion {
 public:
  OperationCompletion(Operation operation, int rank, int size) : call_(std::move(operation), rank, size) {}

  StagedCall& call() { return call_; }
  const Operation& operation() const { return call_.operation(); }

  WorkPtr work(std::uint64_t sequence) const {
    WorkPtr work = make_work(promise_.get_future(), operation().type, sequence);
    if (operation().type != OpType::recv && operation().type != OpType::recv_anysource) return work;
    return std::make_shared<ReceiveWork>(std::move(work), source_);
  }

  void complete(c10d::Work* work, const std::exception_ptr& error) {
    try {
      if (error) std::rethrow_exception(error);
      call_.finish();
      if (operation().type == OpType::recv) *source_ = operation().root;
      if (operation().type == OpType::recv_anysource) *source_ = work->sourceRank();
      promise_.try_set_value(operation().outputs);
    } catch (...) {
      promise_.try_set_error(from_torch_error(std::current_exception()));
    }
  }

 private:
  StagedCall call_;
  const std::shared_ptr<std::atomic<int>> source_ = std::make_shared<std::atomic<int>>(-1);
  Promise<std::vector<Tensor>> promise_;
};

/// Completes `completion` when the work is done: through its future (returns true), or from a thread that waits for it
/// (returns false).
bool complete_with(const c10::intrusive_ptr<c10d::Work>& work, const std::shared_ptr<OperationCompletion>& completion) {
  c10::intrusive_ptr<c10::ivalue::Future> future;
  try {
    future = future_of_work(work);
  } catch (const InvalidArgument&) {
    throw;
  } catch (const std::exception&) {  // the Python work or the backend has no futures
  }
  if (future) {
    future->addCallback([completion, work](c10::ivalue::Future& done) {
      completion->complete(work.get(), done.hasError() ? done.exception_ptr() : exception_from(done.constValue()));
    });
    return true;
  }
  adapter::CallbackPool::instance().post([completion, work] {
    std::exception_ptr error;
    try {
      work->wait(completion->operation().timeout.value_or(kNoTimeout));
    } catch (...) {
      error = std::current_exception();
    }
    completion->complete(work.get(), error);
  });
  return false;
}

}  // namespace

TorchGroup::TorchGroup(c10::intrusive_ptr<c10d::ProcessGroup> group, std::shared_ptr<void> owner)
    : group_(std::move(group)),
      owner_(std::move(owner)),
      rank_(with_hookline_errors([&] { return group_->getRank(); })),
      size_(with_hookline_errors([&] { return group_->getSize(); })),
      name_(with_hookline_errors([&] { return group_->getBackendName(); })) {}

std::string TorchGroup::group_name() const {
  return with_hookline_errors([&] { return group_->getGroupName(); });
}

WorkPtr TorchGroup::run(Operation operation) {
  check_arguments(operation, rank_, size_);
  if (operation.reader) throw Unsupported("the torch group '" + name_ + "' does not support BlockReader");
  const std::uint64_t sequence = sequence_.fetch_add(1) + 1;
  const OpType type = operation.type;
  if (const std::exception_ptr cause = error()) {
    Promise<std::vector<Tensor>> failed;
    failed.set_error(cause);
    return make_work(failed.get_future(), type, sequence);
  }
  const group::SentBytes bytes_sent;
  c10::intrusive_ptr<c10d::Work> work;
  std::shared_ptr<OperationCompletion> completion;
  try {
    work = with_hookline_errors([&] {
      completion = std::make_shared<OperationCompletion>(std::move(operation), rank_, size_);
      return start(completion->call());
    });
  } catch (const Error& e) {
    // torch's error for an operation that a Python group does not define.
    if (std::string_view(e.what()).find("No backend type associated") == std::string_view::npos) throw;
    throw Unsupported("the torch group '" + name_ + "' does not support " + std::string(name(type)) + ": " + e.what());
  }
  bytes_sent.add(completion->operation(), size_);
  WorkPtr result = completion->work(sequence);
  if (work) {
    if (complete_with(work, completion) && overrides_wait(work)) {
      result = std::make_shared<PythonWork>(std::move(result), std::move(work));
    }
  } else if (type == OpType::monitored_barrier) {
    completion->complete(nullptr, nullptr);
  } else {
    throw InvalidArgument(std::string(name(type)) + " of the torch group '" + name_ +
                          "': wrong return value: expected a Work, got None");
  }
  return result;
}

c10::intrusive_ptr<c10d::Work> TorchGroup::start(StagedCall& call) {
  const Operation& operation = call.operation();
  std::vector<at::Tensor>& inputs = call.inputs();
  std::vector<at::Tensor>& outputs = call.outputs();
  std::vector<std::vector<at::Tensor>> lists;
  switch (operation.type) {
    case OpType::allreduce: return group_->allreduce(outputs, options_of<c10d::AllreduceOptions>(call));
    case OpType::allreduce_coalesced:
      return group_->allreduce_coalesced(outputs, options_of<c10d::AllreduceCoalescedOptions>(call));
    case OpType::reduce: return group_->reduce(outputs, options_of<c10d::ReduceOptions>(call));
    case OpType::broadcast: return group_->broadcast(outputs, options_of<c10d::BroadcastOptions>(call));
    case OpType::allgather:
      lists.push_back(outputs);
      return group_->allgather(lists, inputs, options_of<c10d::AllgatherOptions>(call));
    case OpType::allgather_coalesced: {
      const std::size_t each = inputs.size();
      for (std::size_t i = 0; i < outputs.size(); i += each) {
        const auto first = outputs.begin() + static_cast<std::ptrdiff_t>(i);
        lists.emplace_back(first, first + static_cast<std::ptrdiff_t>(each));
      }
      return group_->allgather_coalesced(lists, inputs, options_of<c10d::AllgatherOptions>(call));
    }
    case OpType::allgather_into_tensor:
      return group_->all_gather_single(outputs[0], inputs[0], options_of<c10d::AllgatherOptions>(call));
    case OpType::allgather_into_tensor_coalesced:
      return group_->all_gather_single_coalesced(outputs, inputs, options_of<c10d::AllgatherOptions>(call));
    case OpType::gather:
      if (rank_ == operation.root) lists.push_back(outputs);
      return group_->gather(lists, inputs, options_of<c10d::GatherOptions>(call));
    case OpType::scatter:
      if (rank_ == operation.root) lists.push_back(inputs);
      return group_->scatter(outputs, lists, options_of<c10d::ScatterOptions>(call));
    case OpType::reduce_scatter:
      lists.push_back(inputs);
      return group_->reduce_scatter(outputs, lists, options_of<c10d::ReduceScatterOptions>(call));
    case OpType::reduce_scatter_tensor:
      return group_->reduce_scatter_single(outputs[0], inputs[0], options_of<c10d::ReduceScatterOptions>(call));
    case OpType::reduce_scatter_tensor_coalesced:
      return group_->reduce_scatter_single_coalesced(outputs, inputs, options_of<c10d::ReduceScatterOptions>(call));
    case OpType::alltoall:
    case OpType::alltoall_base:
      return group_->all_to_all_single(outputs[0], inputs[0], call.output_splits(), call.input_splits(),
                                       options_of<c10d::AllToAllOptions>(call));
    case OpType::send: return group_->send(inputs, operation.root, operation.tag);
    case OpType::recv: return group_->recv(outputs, operation.root, operation.tag);
    case OpType::recv_anysource: return group_->recvAnysource(outputs, operation.tag);
    case OpType::barrier: return group_->barrier(options_of<c10d::BarrierOptions>(call));
    case OpType::monitored_barrier: break;
  }
  group_->monitoredBarrier(options_of<c10d::BarrierOptions>(call), operation.wait_all_ranks);
  return nullptr;
}

std::exception_ptr TorchGroup::error() const {
  const std::lock_guard lock(mutex_);
  return error_;
}

// torch's groups do not forward the cause to other ranks, and Gloo's abort() has no effect.
void TorchGroup::abort(const std::string& cause) {
  {
    const std::lock_guard lock(mutex_);
    if (!error_) {
      error_ = std::make_exception_ptr(
          Aborted("rank " + std::to_string(rank_) + " aborted the torch group '" + name_ + "': " + cause));
    }
  }
  with_hookline_errors([&] { group_->abort(); });
}

std::shared_ptr<ProcessGroup> TorchGroup::new_group(const std::vector<int>&) {
  throw Unsupported("new_group on the torch group '" + name_ +
                    "' is not supported. Call torch.distributed.new_group, and convert its result to a hookline "
                    "group.");
}

Milliseconds TorchGroup::timeout() const {
  try {
    // Not the default backend: a group with one backend for each device has none.
    return group_->getBackend(c10::kCPU)->getBackendOptions()->timeout;
  } catch (const std::exception&) {  // a group implemented in Python, or a backend without options
    return ProcessGroup::timeout();
  }
}

void TorchGroup::set_timeout(Milliseconds timeout) {
  if (timeout <= Milliseconds(0)) {
    throw InvalidArgument("set_timeout: timeout out of range: expected more than 0 ms, got " +
                          std::to_string(timeout.count()) + " ms");
  }
  with_hookline_errors([&] { group_->setTimeout(timeout); });
}

}  // namespace hookline::libtorch
