// A process group of this library as a backend of torch.distributed.
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

/// Options of a group: PyTorch's, and those of init_process_group().
struct BackendOptions final : c10d::Backend::Options {
  explicit BackendOptions(std::chrono::milliseconds timeout = kBackendDefaultTimeout) : Options("hookline", timeout) {}

  std::string group_backend;  ///< InitOptions::backend
  std::map<std::string, std::string> backend_options;
};

/// Every collective of torch.distributed on CPU tensors. Calls that the user waits for at once run in the caller's
/// thread. Errors are those of errors.hpp.
class TorchBackend final : public c10d::Backend {
 public:
  /// `calls_python`: the group calls methods of a Python class, which get the very tensors that PyTorch was called
  /// with.
  explicit TorchBackend(std::shared_ptr<ProcessGroup> group, BackendOptions options = BackendOptions(),
                        bool calls_python = false);
  ~TorchBackend() override;

  /// Meets the other ranks in a store. Blocks until all have come.
  static c10::intrusive_ptr<TorchBackend> create(std::shared_ptr<hookline::Store> store, int rank, int size,
                                                 const BackendOptions& options);

  /// The group that this was made of.
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
  /// What split() and merge() have in common. Options that are not of this backend give the timeout alone.
  c10::intrusive_ptr<Backend> create_by(const char* call, const c10::intrusive_ptr<c10d::Store>& store,
                                        const c10::intrusive_ptr<Options>& opts, int rank, int size);

  struct Call;
  /// The memory of a tensor of the call; with `owned` it keeps the tensor alive.
  Tensor view(const at::Tensor& tensor, const Call& call, bool owned) const;
  std::vector<Tensor> views(const Tensors& tensors, const Call& call, bool owned) const;
  WorkHandle start(Call&& call);
  WorkHandle start_message(OpType type, const char* title, const Tensors& tensors, int peer, int tag);
  /// Several operations of the same kind as one; where their dtypes differ, one by one.
  WorkHandle start_coalesced(Call&& call);
  /// Parts of different sizes.
  WorkHandle start_uneven_reduce_scatter(Call&& call);
  /// Operations that are one for the caller, with what the call says of all of them.
  WorkHandle start_all(Call&& call, std::vector<Collective> parts);
  /// The work as torch gets it; `wait` where it has to be done by then.
  WorkHandle wrap(Call&& call, WorkPtr work, bool wait);

  std::shared_ptr<ProcessGroup> group_;
  const BackendOptions options_;  ///< its timeout may be out of date: the group has the current one
  const bool calls_python_;
  std::atomic<bool> coalescing_ = false;
  std::atomic<bool> broken_ = false;
  std::shared_ptr<Executor> completion_thread_;
};

/// The advice in errors about tensors that are not on the CPU.
inline constexpr const char* kBackendForEachDevice =
    "init_process_group(\"cpu:hookline,cuda:nccl\"), which has a backend for each device, or pass tensor.cpu()";

/// True while any backend lives in this process.
bool backends_live();

/// Shuts down the groups of all backends that live, and lets go of those that are Python classes: for the end of
/// Python, after which no thread may want the GIL.
void shut_down_backends();

}  // namespace hookline::libtorch
