// A Hookline process group as a torch.distributed backend.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>

#include <hookline/group/process_group.hpp>
#include <hookline/store/store.hpp>

namespace hookline::libtorch {

/// Options of a group: PyTorch's options and those of hookline's init_process_group().
struct BackendOptions final : c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout) : Options("hookline", timeout) {}

  std::string group_backend;  ///< InitOptions::backend
  std::map<std::string, std::string> backend_options;
};

/// Implements every collective of torch.distributed for CPU tensors. Blocking calls run in the caller's thread. Errors
/// are converted as described in errors.hpp.
class TorchBackend final : public c10d::Backend {
 public:
  /// `calls_python`: the group is implemented in Python. Its methods get the same Python tensors that the caller
  /// passed.
  explicit TorchBackend(std::shared_ptr<ProcessGroup> group, BackendOptions options = BackendOptions(),
                        bool calls_python = false);
  ~TorchBackend() override;

  /// Creates a group through a store. Collective: blocks until all ranks have joined.
  static c10::intrusive_ptr<TorchBackend> create(std::shared_ptr<hookline::Store> store, int rank, int size,
                                                 const BackendOptions& options);

  /// Returns the wrapped group.
  std::shared_ptr<ProcessGroup> group() const;

  const std::string getBackendName() const override { return "hookline"; }
  c10::intrusive_ptr<Options> getBackendOptions() override;
  bool supportsTensorAlloc(c10::DeviceIndex device) override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                    const c10::intrusive_ptr<Options>& opts) override;
  c10::intrusive_ptr<Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                    const c10::intrusive_ptr<Options>& opts, const int& rank, const int& size) override;

  using WorkHandle = c10::intrusive_ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using TensorLists = std::vector<Tensors>;

  WorkHandle allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkHandle allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkHandle allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkHandle broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkHandle reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkHandle allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkHandle _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& opts) override;
  WorkHandle allgather_coalesced(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkHandle allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& opts) override;
  WorkHandle gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkHandle scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkHandle reduce_scatter(Tensors& outputs, TensorLists& inputs, const c10d::ReduceScatterOptions& opts) override;
  WorkHandle _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                  const c10d::ReduceScatterOptions& opts) override;
  WorkHandle reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                             const c10d::ReduceScatterOptions& opts) override;
  WorkHandle alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  WorkHandle alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                           std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& opts) override;
  WorkHandle send(Tensors& tensors, int target, int tag) override;
  WorkHandle recv(Tensors& tensors, int source, int tag) override;
  WorkHandle recvAnysource(Tensors& tensors, int tag) override;
  WorkHandle barrier(const c10d::BarrierOptions& opts) override;
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;

  void startCoalescing() override;
  WorkHandle endCoalescing() override;

  void setTimeout(std::chrono::milliseconds timeout) override;
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return group_->sequence_number(); }
  void enableCollectivesTiming() override {}
  c10d::ErrorType getError() override;
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  void abort() override;
  void shutdown() override;

 private:
  /// Implements split() and merge(). If the options belong to another backend, only their timeout is used.
  c10::intrusive_ptr<Backend> create_child(const char* call, const c10::intrusive_ptr<c10d::Store>& store,
                                           const c10::intrusive_ptr<Options>& opts, int rank, int size);

  struct Call;
  /// Returns a view of a tensor's memory; with `keep_alive` it keeps the tensor alive.
  Tensor view(const at::Tensor& tensor, const Call& call, bool keep_alive) const;
  std::vector<Tensor> views(const Tensors& tensors, const Call& call, bool keep_alive) const;
  WorkHandle start(Call&& call);
  WorkHandle start_p2p(OpType type, const char* title, const Tensors& tensors, int peer, int tag);
  /// Starts a coalesced operation; if the dtypes differ, one operation for each tensor.
  WorkHandle start_coalesced(Call&& call);
  /// Starts a reduce_scatter with inputs of different sizes.
  WorkHandle start_uneven_reduce_scatter(Call&& call);
  /// Starts several operations with a single work. Timeout and op come from `call`.
  WorkHandle start_as_one(Call&& call, std::vector<Operation> operations);
  /// Wraps a work for torch; with `wait`, first blocks until it is done.
  WorkHandle wrap(Call&& call, WorkPtr work, bool wait);

  std::shared_ptr<ProcessGroup> group_;
  const BackendOptions options_;  ///< the initial options; the group has the current timeout
  const bool calls_python_;
  std::atomic<bool> coalescing_ = false;
  std::atomic<bool> aborted_ = false;
  std::shared_ptr<Executor> completion_thread_;
};

/// Advice in error messages about tensors that are not on the CPU.
inline constexpr const char* kPerDeviceBackendAdvice =
    "init_process_group(\"cpu:hookline,cuda:nccl\"), which has a backend for each device, or pass tensor.cpu()";

/// True if any TorchBackend is alive in this process.
bool has_live_backends();

/// Shuts down the groups of all live backends and releases those implemented in Python. Called when Python finalizes;
/// afterwards no thread may take the GIL.
void shut_down_backends();

}  // namespace hookline::libtorch
