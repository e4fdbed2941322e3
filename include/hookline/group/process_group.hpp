// Ranks that communicate: the collectives, under the names that users of torch.distributed know.
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

/// The seam: an implementation has one virtual for all operations, run(). The named methods describe a call as a
/// Collective and hand it to run(), so that a group that wraps another handles every operation in one place.
///
/// Every rank of a group makes the same calls in the same order (within a lane). Arguments that make no sense throw
/// InvalidArgument at once; everything else comes through the Work. Tensors must stay untouched until it is done. An
/// operation goes on where its Work is dropped, but then nothing tells when it is done and what failed.
class HOOKLINE_EXPORT ProcessGroup : public std::enable_shared_from_this<ProcessGroup> {
 public:
  virtual ~ProcessGroup();

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string backend_name() const = 0;
  /// What people call this group: the backend's name unless somebody has given it one.
  virtual std::string group_name() const { return backend_name(); }
  /// "shm group, rank 0 of 4"
  virtual std::string description() const;
  virtual Capabilities capabilities() const { return {}; }

  /// Starts any operation. Throws Unsupported where this group lacks it.
  [[nodiscard]] virtual WorkPtr run(Collective collective) = 0;

  // In place.
  [[nodiscard]] WorkPtr allreduce(const Tensor& tensor, const AllreduceOptions& options = {});
  [[nodiscard]] WorkPtr allreduce(const std::vector<Tensor>& tensors, const AllreduceOptions& options = {});
  /// The same on encoded values; see CompressedReduction.
  [[nodiscard]] WorkPtr allreduce(const Tensor& tensor, CodecPtr codec, const AllreduceOptions& options = {});
  [[nodiscard]] WorkPtr allreduce_coalesced(const std::vector<Tensor>& tensors, const AllreduceOptions& options = {});
  [[nodiscard]] WorkPtr reduce(const Tensor& tensor, const ReduceOptions& options = {});
  [[nodiscard]] WorkPtr broadcast(const Tensor& tensor, const BroadcastOptions& options = {});

  // Outputs first. A list has one tensor for each rank; an output "into tensor" has as many parts along its memory.
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
  /// Splits are rows of dimension 0 for each rank; empty means equal parts.
  [[nodiscard]] WorkPtr alltoall_base(const Tensor& output, const Tensor& input,
                                      std::vector<std::int64_t> output_splits = {},
                                      std::vector<std::int64_t> input_splits = {}, const AlltoallOptions& options = {});

  // Matched by peer, tag and order; outside the order of the collectives.
  [[nodiscard]] WorkPtr send(const Tensor& tensor, int target, const MessageOptions& options = {});
  [[nodiscard]] WorkPtr recv(const Tensor& tensor, int source, const MessageOptions& options = {});
  [[nodiscard]] WorkPtr recv_anysource(const Tensor& tensor, const MessageOptions& options = {});

  [[nodiscard]] WorkPtr barrier(const BarrierOptions& options = {});
  /// A barrier that blocks; the error names the first rank that did not come in time, or all of them.
  void monitored_barrier(const MonitoredBarrierOptions& options = {});

  /// Operations that any thread starts between the two calls have a work in common, which the second one returns: done
  /// when all of them are, with their outputs one after another. Their own works remain good. Unsupported where the
  /// group has no such thing.
  virtual void start_coalescing();
  [[nodiscard]] virtual WorkPtr end_coalescing();
  /// Between the two calls: has the common work wait for this one, too, which was made of several operations.
  virtual void coalesce(const WorkPtr&) {}

  /// A tensor in memory that the group's collectives work on in place, where the backend has such memory.
  virtual Tensor empty(const Dims& shape, DType dtype = DType::f32);
  /// A group of some of the ranks, in the order given; null on a rank that is not among them. Every rank of this group
  /// calls it, in the same order as other calls of it.
  virtual std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks);
  /// Groups of the ranks that passed the same color, ordered by key, then rank; null for a negative color.
  virtual std::shared_ptr<ProcessGroup> split(int color, int key);

  /// How long an operation may take where its options do not say.
  virtual Milliseconds timeout() const { return kDefaultTimeout; }
  virtual void set_timeout(Milliseconds timeout);
  /// How many operations were started on this rank.
  virtual std::uint64_t sequence_number() const { return 0; }
  /// Has `hook` called after every operation that starts from now on, failed or not, in the order in which they end (in
  /// a lane that is the order of their starts). With an executor it is called there; without one in the thread that
  /// ends the operation: it must be short then. What it throws fails the wait() of that operation, or wait_for_hooks().
  /// Until its hooks have been called a work is not completed. A hook that owns the group keeps it alive.
  virtual void register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor = nullptr);
  /// Waits for every operation that was started, and for its hooks. Throws what a hook threw that no wait() has thrown.
  virtual void wait_for_hooks(std::optional<Milliseconds> timeout = std::nullopt);
  /// Fails everything under way and to come on every rank, with Aborted naming this one and the cause.
  virtual void abort(const std::string& cause = "abort() was called");
  /// Leaves the group. The destructor does it too; neither waits for a peer.
  virtual void shutdown() {}
};

/// A group that runs on a backend; the arguments of every call are checked first.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> make_group(std::shared_ptr<Backend> backend,
                                                         Milliseconds timeout = kDefaultTimeout);

}  // namespace hookline
