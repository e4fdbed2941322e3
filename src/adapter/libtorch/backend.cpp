// Creates and shuts down torch backends, and starts their operations.
#include "adapter/libtorch/backend.hpp"

#include <algorithm>
#include <mutex>
#include <utility>

#include <ATen/record_function.h>

#include <hookline/core/executor.hpp>
#include <hookline/group/init.hpp>
#include <hookline/store/prefix_store.hpp>

#include "adapter/libtorch/call.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/gil.hpp"
#include "adapter/libtorch/live_objects.hpp"
#include "adapter/libtorch/releasable_group.hpp"
#include "adapter/libtorch/store.hpp"
#include "adapter/libtorch/tensors.hpp"
#include "adapter/libtorch/work.hpp"

namespace hookline::libtorch {
namespace {

c10d::OpType to_op_type(OpType type) {
  switch (type) {
    case OpType::allreduce: return c10d::OpType::ALLREDUCE;
    case OpType::allreduce_coalesced: return c10d::OpType::ALLREDUCE_COALESCED;
    case OpType::reduce: return c10d::OpType::REDUCE;
    case OpType::broadcast: return c10d::OpType::BROADCAST;
    case OpType::allgather: return c10d::OpType::ALLGATHER;
    case OpType::allgather_into_tensor: return c10d::OpType::_ALLGATHER_BASE;
    case OpType::allgather_coalesced:
    case OpType::allgather_into_tensor_coalesced: return c10d::OpType::ALLGATHER_COALESCED;
    case OpType::gather: return c10d::OpType::GATHER;
    case OpType::scatter: return c10d::OpType::SCATTER;
    case OpType::reduce_scatter: return c10d::OpType::REDUCE_SCATTER;
    case OpType::reduce_scatter_tensor: return c10d::OpType::_REDUCE_SCATTER_BASE;
    case OpType::reduce_scatter_tensor_coalesced: return c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED;
    case OpType::alltoall: return c10d::OpType::ALLTOALL;
    case OpType::alltoall_base: return c10d::OpType::ALLTOALL_BASE;
    case OpType::send: return c10d::OpType::SEND;
    case OpType::recv: return c10d::OpType::RECV;
    case OpType::recv_anysource: return c10d::OpType::RECVANYSOURCE;
    case OpType::barrier:
    case OpType::monitored_barrier: break;
  }
  return c10d::OpType::BARRIER;
}

}  // namespace

std::optional<Milliseconds> optional_timeout(std::chrono::milliseconds timeout) {
  if (timeout == c10d::kUnsetTimeout || timeout == kNoTimeout) return std::nullopt;
  return timeout;
}

ReduceOp to_reduce_op(const c10d::ReduceOp& op, const char* operation) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM: return ReduceOp::sum;
    case c10d::ReduceOp::AVG: return ReduceOp::avg;
    case c10d::ReduceOp::PRODUCT: return ReduceOp::product;
    case c10d::ReduceOp::MIN: return ReduceOp::min;
    case c10d::ReduceOp::MAX: return ReduceOp::max;
    case c10d::ReduceOp::BAND: return ReduceOp::band;
    case c10d::ReduceOp::BOR: return ReduceOp::bor;
    case c10d::ReduceOp::BXOR: return ReduceOp::bxor;
    case c10d::ReduceOp::PREMUL_SUM: {
      const auto* factor = static_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      if (!factor) throw InvalidArgument(std::string(operation) + ": PREMUL_SUM requires a factor, got none");
      return ReduceOp::premul_sum(factor->tensor_factor.defined() ? factor->tensor_factor.item<double>()
                                                                  : factor->double_factor);
    }
    default: break;
  }
  throw InvalidArgument(std::string(operation) + ": unknown reduction: got ReduceOp number " + std::to_string(op.op_));
}

ReduceOp TorchBackend::Call::reduction() const {
  const ReduceOp made = to_reduce_op(*op, name());
  if (made == ReduceOp::sum || made == ReduceOp::avg || made.kind() == ReduceOp::Kind::premul_sum) return made;
  for (const at::Tensor& tensor : inputs) {
    if (!tensor.is_complex()) continue;
    throw InvalidArgument(std::string(name()) + ": unsupported op for complex tensors: expected SUM, AVG or " +
                          "PREMUL_SUM, got " + std::string(hookline::name(made)));
  }
  return made;
}

TorchBackend::TorchBackend(std::shared_ptr<ProcessGroup> group, BackendOptions options, bool calls_python)
    : Backend(group->rank(), group->size()),
      group_(calls_python ? std::make_shared<ReleasableGroup>(std::move(group)) : std::move(group)),
      options_(std::move(options)),
      calls_python_(calls_python) {
  LiveObjects<ProcessGroup>::instance().add(group_);
}

TorchBackend::~TorchBackend() {
  // The group's destructor joins threads that may need the GIL.
  const GilRelease released;
  group_.reset();
}

std::shared_ptr<ProcessGroup> TorchBackend::group() const {
  const auto ending = std::dynamic_pointer_cast<ReleasableGroup>(group_);
  return ending ? ending->group() : group_;
}

bool has_live_backends() { return !LiveObjects<ProcessGroup>::instance().snapshot().empty(); }

void shut_down_backends() {
  for (const auto& group : LiveObjects<ProcessGroup>::instance().snapshot()) {
    try {
      group->shutdown();
    } catch (const std::exception&) {  // no caller is left to report it to
    }
    if (auto ending = std::dynamic_pointer_cast<ReleasableGroup>(group)) ending->release();
  }
}

c10::intrusive_ptr<TorchBackend> TorchBackend::create(std::shared_ptr<Store> store, int rank, int size,
                                                      const BackendOptions& options) {
  return with_torch_errors([&] {
    const Interruptible interruptible;
    InitOptions init;
    init.backend = options.group_backend;
    init.backend_options = options.backend_options;
    init.store = std::move(store);
    init.rank = rank;
    init.world_size = size;
    if (options.timeout > kNoTimeout) init.timeout = options.timeout;
    return c10::make_intrusive<TorchBackend>(init_process_group(init), options);
  });
}

c10::intrusive_ptr<c10d::Backend::Options> TorchBackend::getBackendOptions() {
  auto options = c10::make_intrusive<BackendOptions>(options_);
  options->timeout = group_->timeout();
  return options;
}

// torch calls this once for each device type, with the same store: a call counter gives each call its own prefix.
c10::intrusive_ptr<c10d::Backend> TorchBackend::create_child(const char* call,
                                                             const c10::intrusive_ptr<c10d::Store>& store,
                                                             const c10::intrusive_ptr<Options>& opts, int rank,
                                                             int size) {
  const std::string name(call);
  const std::int64_t call_count = store->add("hookline " + name + " " + std::to_string(rank), 1);
  auto child_store =
      std::make_shared<PrefixStore>(name + " " + std::to_string(call_count), std::make_shared<TorchStore>(store));
  const auto* const own_options = dynamic_cast<const BackendOptions*>(opts.get());
  BackendOptions options = own_options ? *own_options : options_;
  options.timeout = opts ? opts->timeout : group_->timeout();
  return create(std::move(child_store), rank, size, options);
}

c10::intrusive_ptr<c10d::Backend> TorchBackend::split(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const std::vector<int>& ranks,
                                                      const c10::intrusive_ptr<Options>& opts) {
  const auto own = std::find(ranks.begin(), ranks.end(), getRank());
  if (own == ranks.end()) return nullptr;
  return create_child("split", store, opts, static_cast<int>(own - ranks.begin()), static_cast<int>(ranks.size()));
}

c10::intrusive_ptr<c10d::Backend> TorchBackend::merge(const c10::intrusive_ptr<c10d::Store>& store,
                                                      const c10::intrusive_ptr<Options>& opts, const int& rank,
                                                      const int& size) {
  return create_child("merge", store, opts, rank, size);
}

Tensor TorchBackend::view(const at::Tensor& tensor, const Call& call, bool keep_alive) const {
  const TensorUse use = call.op ? TensorUse::reduce : TensorUse::copy;
  if (calls_python_ && python_runtime().tensor_owner && tensor.defined()) {
    if (auto owner = python_runtime().tensor_owner(tensor)) return view_of(tensor, call.name(), use, std::move(owner));
  }
  return view_of(tensor, call.name(), use, keep_alive);
}

std::vector<Tensor> TorchBackend::views(const Tensors& tensors, const Call& call, bool keep_alive) const {
  std::vector<Tensor> views;
  views.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) views.push_back(view(tensor, call, keep_alive));
  return views;
}

TorchBackend::WorkHandle TorchBackend::start(Call&& call) {
  return with_torch_errors([&] {
    const bool wait = !call.async && !coalescing_.load(std::memory_order_relaxed);
    Operation operation;
    operation.type = call.type;
    if (!works_in_place(operation.type)) operation.inputs = views(call.inputs, call, !wait);
    operation.outputs = views(call.outputs, call, !wait);
    operation.timeout = optional_timeout(call.timeout);
    if (call.op) operation.op = call.reduction();
    operation.root = static_cast<int>(call.root);
    operation.tag = call.tag;
    operation.input_splits = std::move(call.input_splits);
    operation.output_splits = std::move(call.output_splits);
    WorkPtr work = group_->run(std::move(operation));
    return wrap(std::move(call), std::move(work), wait);
  });
}

TorchBackend::WorkHandle TorchBackend::wrap(Call&& call, WorkPtr work, bool wait) {
  if (wait) {
    const Interruptible interruptible;
    try {
      work->wait();
    } catch (...) {
      // A signal ends only the wait: the operation continues, and its views do not own the tensors, so keep them alive.
      work->on_complete([inputs = call.inputs, outputs = call.outputs] {}, Urgency::low);
      throw;
    }
  }
  const char* const title = at::hasCallbacks() ? call.title : nullptr;
  return c10::make_intrusive<TorchWork>(getRank(), to_op_type(call.type), title, call.inputs, std::move(work),
                                        call.result ? *call.result : call.outputs);
}

void TorchBackend::startCoalescing() {
  with_torch_errors([&] { group_->start_coalescing(); });
  coalescing_ = true;
}

TorchBackend::WorkHandle TorchBackend::endCoalescing() {
  coalescing_ = false;
  return with_torch_errors([&] {
    WorkPtr work = group_->end_coalescing();
    return c10::make_intrusive<TorchWork>(getRank(), c10d::OpType::COALESCED, nullptr, Tensors(), std::move(work),
                                          Tensors());
  });
}

void TorchBackend::setTimeout(std::chrono::milliseconds timeout) {
  with_torch_errors([&] { group_->set_timeout(timeout); });
}

c10d::ErrorType TorchBackend::getError() { return aborted_ ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS; }

// A Python hook takes the GIL, so it runs on a thread of its own, which Python's finalization waits for.
void TorchBackend::registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  with_torch_errors([&] {
    if (!completion_thread_) completion_thread_ = std::make_shared<ThreadExecutor>("hookline-hooks");
    onCompletionHook_ = hook;
    const auto call_hook = [hook = std::move(hook)](const WorkInfo& info) {
      hook(std::make_shared<c10d::WorkInfo>(to_op_type(info.op_type), info.seq, info.time_started, info.time_finished,
                                            std::chrono::duration<float>(info.active_duration)));
    };
    group_->register_on_completion_hook(call_hook, completion_thread_);
  });
}

void TorchBackend::waitForPendingWorks() {
  with_torch_errors([&] {
    const Interruptible interruptible;
    group_->wait_for_hooks();
  });
}

void TorchBackend::abort() {
  aborted_ = true;
  with_torch_errors([&] { group_->abort("torch.distributed called abort()"); });
}

void TorchBackend::shutdown() {
  with_torch_errors([&] { group_->shutdown(); });
}

}  // namespace hookline::libtorch
