// ProcessGroup: collectives and point-to-point operations under torch.distributed's names.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/backend/work.hpp>
#include <hookline/codec/codec.hpp>
#include <hookline/core/export.hpp>
#include <hookline/group/options.hpp>
#include <hookline/group/work_info.hpp>

namespace hookline {

/// The interface of all groups. The named methods build an Operation and pass it to run(), the one virtual for all
/// operations, so a wrapper handles every operation in one place.
///
/// Every rank makes the same calls in the same order within a lane. Invalid arguments throw InvalidArgument
/// immediately; peer failures and timeouts complete the Work with an error. Do not access the tensors until the Work is
/// done. Dropping a Work does not cancel its operation, but its completion and error can no longer be observed.
class HOOKLINE_EXPORT ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  virtual ~ProcessGroup();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string backend_name() const = 0;
  /// Returns the group's display name; by default the backend's name.
  virtual std::string group_name() const { return backend_name(); }
  /// Returns a description such as "shm group, rank 0 of 4".
  virtual std::string description() const;
  virtual Capabilities capabilities() const { return {}; }

  /// Starts an operation. Throws Unsupported if this group does not implement it.
  [[nodiscard]] virtual WorkPtr run(Operation operation) = 0;

  // In place.
  [[nodiscard]] WorkPtr allreduce(const Tensor& tensor, const AllreduceOptions& options = {});
  [[nodiscard]] WorkPtr allreduce(const std::vector<Tensor>& tensors, const AllreduceOptions& options = {});
  /// Compressed allreduce; see CompressedReduction.
  [[nodiscard]] WorkPtr allreduce(const Tensor& tensor, CodecPtr codec, const AllreduceOptions& options = {});
  [[nodiscard]] WorkPtr allreduce_coalesced(const std::vector<Tensor>& tensors, const AllreduceOptions& options = {});
  [[nodiscard]] WorkPtr reduce(const Tensor& tensor, const ReduceOptions& options = {});
  [[nodiscard]] WorkPtr broadcast(const Tensor& tensor, const BroadcastOptions& options = {});

  // Outputs come first. A list has one tensor per rank; an "into tensor" output has one slice per rank in its memory.
  [[nodiscard]] WorkPtr allgather(std::vector<Tensor> outputs, const Tensor& input,
                                  const AllgatherOptions& options = {});
  [[nodiscard]] WorkPtr allgather_into_tensor(const Tensor& output, const Tensor& input,
                                              const AllgatherOptions& options = {});
  [[nodiscard]] WorkPtr allgather_coalesced(const std::vector<std::vector<Tensor>>& outputs, std::vector<Tensor> inputs,
                                            const AllgatherOptions& options = {});
  [[nodiscard]] WorkPtr allgather_into_tensor_coalesced(std::vector<Tensor> outputs, std::vector<Tensor> inputs,
                                                        const AllgatherOptions& options = {});
  /// Ranks other than the root pass no outputs; in scatter, no inputs.
  [[nodiscard]] WorkPtr gather(std::vector<Tensor> outputs, const Tensor& input, const GatherOptions& options = {});
  [[nodiscard]] WorkPtr scatter(const Tensor& output, std::vector<Tensor> inputs, const ScatterOptions& options = {});
  [[nodiscard]] WorkPtr reduce_scatter(const Tensor& output, std::vector<Tensor> inputs,
                                       const ReduceScatterOptions& options = {});
  [[nodiscard]] WorkPtr reduce_scatter_tensor(const Tensor& output, const Tensor& input,
                                              const ReduceScatterOptions& options = {});
  [[nodiscard]] WorkPtr reduce_scatter_tensor_coalesced(std::vector<Tensor> outputs, std::vector<Tensor> inputs,
                                                        const ReduceScatterOptions& options = {});
  [[nodiscard]] WorkPtr alltoall(std::vector<Tensor> outputs, std::vector<Tensor> inputs,
                                 const AlltoallOptions& options = {});
  /// Splits are rows of dimension 0 per rank; empty means an equal split.
  [[nodiscard]] WorkPtr alltoall_base(const Tensor& output, const Tensor& input,
                                      std::vector<std::int64_t> output_splits = {},
                                      std::vector<std::int64_t> input_splits = {}, const AlltoallOptions& options = {});

  // Point-to-point: matched by peer, tag and order, independently of the collectives.
  [[nodiscard]] WorkPtr send(const Tensor& tensor, int target, const P2POptions& options = {});
  [[nodiscard]] WorkPtr recv(const Tensor& tensor, int source, const P2POptions& options = {});
  [[nodiscard]] WorkPtr recv_anysource(const Tensor& tensor, const P2POptions& options = {});

  [[nodiscard]] WorkPtr barrier(const BarrierOptions& options = {});
  /// Blocks until all ranks arrive. The error names the first missing rank, or all with wait_all_ranks.
  void monitored_barrier(const MonitoredBarrierOptions& options = {});

  /// Operations started by any thread between the two calls share a Work, which end_coalescing() returns. It completes
  /// when all these operations have completed; its result is their outputs in start order. Their own Works stay valid.
  /// Throws Unsupported if the group does not support coalescing.
  virtual void start_coalescing();
  [[nodiscard]] virtual WorkPtr end_coalescing();
  /// Adds a Work composed of several operations to the active coalescing, if any.
  virtual void coalesce(const WorkPtr&) {}

  /// Returns a tensor in memory that collectives use without staging, if the backend has such memory.
  virtual Tensor empty(const Dims& shape, DType dtype = DType::f32);
  /// Returns a subgroup of the listed ranks, in the listed order; null on other ranks. Every rank of this group calls
  /// it, in the same order.
  virtual std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks);
  /// Returns the subgroup of ranks with the same color, ordered by key, then rank; null for a negative color.
  virtual std::shared_ptr<ProcessGroup> split(int color, int key);

  /// Returns the default timeout of operations.
  virtual Milliseconds timeout() const { return kDefaultTimeout; }
  virtual void set_timeout(Milliseconds timeout);
  /// Returns the number of operations started on this rank.
  virtual std::uint64_t sequence_number() const { return 0; }
  /// Registers `hook` to run after every subsequent operation, successful or not, in completion order (within a lane
  /// the start order). It runs on `executor`, or without one on the thread that completes the operation; in the
  /// latter case it must be short. Its exception fails wait() of that operation, or wait_for_hooks(). A Work is not
  /// completed before its hooks have run. A hook that owns the group keeps it alive.
  virtual void register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor = nullptr);
  /// Blocks until every started operation and its hooks have completed. Throws a hook's exception that no wait() threw.
  virtual void wait_for_hooks(std::optional<Milliseconds> timeout = std::nullopt);
  /// Fails all current and future operations on every rank with Aborted, naming this rank and the cause.
  virtual void abort(const std::string& cause = "abort() was called");
  /// Leaves the group, as the destructor does. Does not wait for peers.
  virtual void shutdown() {}
};

/// Returns a group on `backend` that validates the arguments of every call.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> make_group(std::shared_ptr<Backend> backend,
                                                         Milliseconds timeout = kDefaultTimeout);

}  // namespace hookline
