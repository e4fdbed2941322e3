// ReducerImpl: state of a reducer, and its locking rules.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/reducer/reducer.hpp>

#include "hook/bucket_scheduler.hpp"
#include "kernel/store_mode.hpp"

namespace hookline::reducer {

/// Per-parameter progress, accessed by every mark and therefore small. `marks` counts marks that have begun, `copied`
/// those whose gradient is in the bucket; any thread may increment them. The thread that marks the parameter writes the
/// flags from `accumulated` on. The other fields change only between steps and in finalize().
struct ParamProgress {
  std::uint32_t bucket = 0;
  std::uint32_t expected_marks = 1;  ///< number of marks per step
  std::atomic<std::uint32_t> marks = 0;
  std::atomic<std::uint32_t> copied = 0;
  bool dense = false;        ///< has a gradient and is not sparse
  bool unused = false;       ///< no rank has a gradient for it, in this step or static graph
  bool accumulated = false;  ///< the bucket holds a sum accumulated under no_sync
  bool stale_grad = false;   ///< this rank contributes a gradient of earlier passes
  bool needs_reset = false;  ///< its slot must be reset at the end of the step
};

/// Per-parameter gradient location and step state. `data` and `view` change only between steps. The marking thread
/// writes the other fields; finalize() reads them after the bucket's `pending` has reached zero (release/acquire).
struct GradSlot {
  std::byte* data = nullptr;
  Tensor view;
  std::uint64_t arrival_order = 0;     ///< arrival order in the step that decides the bucket order
  std::byte* writeback_ptr = nullptr;  ///< destination of the mean, if contiguous
  std::shared_ptr<void> writeback_owner;
  std::optional<Tensor> writeback_view;  ///< destination of the mean, if not contiguous
  bool view_exposed = false;             ///< gradient() returned the view
  std::optional<Tensor> saved_grad;      ///< previous value of an unused parameter's exposed view
  std::vector<SparseGradient> sparse_grads;
  std::optional<SparseGradient> reduced_sparse_grad;
};

/// One bucket. States: filling (pending > 0), full, queued, launched, done. Any marking thread makes it full. The
/// thread that makes a bucket full, or finalize(), queues it in bucket order. A thread that launches buckets of the
/// group makes it launched, unless the reducer has failed, and the thread that completes the hook's Future makes it
/// done. All three do so under the mutex. finalize() resets the bucket once it is done, or if it was never queued.
struct Bucket {
  ParameterIndices members;
  std::shared_ptr<const BucketLayout> layout;
  Tensor buffer;
  bool sparse = false;
  std::atomic<std::size_t> pending = 0;
  std::atomic<bool> needs_writeback = false;  ///< a gradient was passed to mark_ready and receives the mean
  Clock::time_point ready_at;                 ///< written by the thread that makes it full
  int lane = 0;
  bool launched = false;
  bool done = false;
  Clock::time_point launched_at, done_at;
  std::optional<GradBucket> grad_bucket;  ///< the hook's argument
  WorkPtr work;                           ///< of a plain allreduce, which needs no Future
  std::optional<HookResult> result;       ///< set when done, except after an error
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent;
};

/// A step is open from the first mark to the end of finalize(). `step_mutex_` guards opening it. finalize() and methods
/// between steps run on one user thread. `mutex_` guards the states queued, launched and done of buckets, and the
/// failure; no hook and no collective runs under it.
class ReducerImpl : public std::enable_shared_from_this<ReducerImpl> {
 public:
  ReducerImpl(std::vector<Parameter> model_parameters, std::shared_ptr<ProcessGroup> process_group, HookPtr comm_hook,
              ReducerOptions reducer_options);

  void initialize(const std::vector<NamedTensor>& buffers);
  std::vector<ParameterIndices> current_plan() const;
  std::size_t index_of(std::string_view name) const;
  void mark_ready(std::size_t parameter);
  void mark_ready(std::size_t parameter, const Tensor& gradient);
  void mark_ready(std::size_t parameter, const SparseGradient& gradient);
  void mark_unused(std::size_t parameter, const Tensor& gradient);
  void mark_unused(std::size_t parameter, const SparseGradient& gradient);
  void finalize();
  void discard_step();
  Tensor gradient(std::size_t parameter);
  void copy_gradient(std::size_t parameter, const Tensor& destination) const;
  SparseGradient sparse_gradient(std::size_t parameter) const;
  std::vector<NamedGradient> reduced_gradients() const;
  void set_hook(HookPtr replacement);
  void set_weight(double weight);
  void begin_join(const JoinOptions& join_options);
  void end_join();
  void check_between_steps(const char* caller) const;
  std::exception_ptr failure();

  const std::vector<Parameter> parameters;
  const std::shared_ptr<ProcessGroup> group;  ///< declared before scheduler_, which must not outlive it
  const ReducerOptions options;
  HookPtr hook;
  bool no_sync = false;
  std::optional<std::uint32_t> step_id;  ///< the caller's id of subsequent steps
  StepStats stats;
  std::deque<Bucket> buckets;

 private:
  std::vector<Tensor> trainable_tensors() const;
  void check_parameter(std::size_t parameter) const;
  static std::string join_names(const std::vector<std::string_view>& names);  ///< the first names, for messages
  void throw_if_failed();

  void check_join_allowed(const char* caller) const;
  /// Throws InvalidArgument if a gradient has an integer dtype. `reason` explains the conflict.
  void require_floating_gradients(const std::string& reason) const;

  // Opening a step, and marks (reducer_impl.cpp).
  bool open_step(bool active);
  bool begin_mark(std::size_t parameter);
  void finish_mark(std::size_t parameter, bool counts);
  void check_gradient(std::size_t parameter, const Tensor& gradient) const;
  void check_gradient(std::size_t parameter, const SparseGradient& gradient) const;
  void check_accumulation(std::size_t parameter, const Tensor& gradient) const;
  void store_rows(std::size_t parameter, const SparseGradient& gradient);
  bool begin_mark_unused(std::size_t parameter);
  void copy_into_bucket(std::size_t parameter, const Tensor& gradient);
  void count_ready(std::size_t parameter);

  // Buckets and their order (layout.cpp).
  void allocate_buckets();
  void build_buckets(const std::vector<ParameterIndices>& plan);
  void check_buckets_option() const;
  void rebuild_if_pending();
  std::vector<std::size_t> reverse_order() const;
  std::vector<std::size_t> broadcast_order();
  std::vector<ParameterIndices> plan_for(const std::vector<std::size_t>& order) const;

  // Hooks (launch.cpp).
  void queue_full_buckets();
  void launch(std::size_t index, int lane);
  HookStep hook_step() const;
  ReduceOp allreduce_op() const { return options.reduction == GradientReduction::sum ? ReduceOp::sum : ReduceOp::avg; }
  void start_hook(Bucket& bucket, std::size_t index);
  Future<HookResult> run_sparse(Bucket& bucket, std::size_t index);
  void on_hook_done(Bucket& bucket, std::size_t index, const std::exception_ptr& error,
                    std::optional<HookResult> result);
  void fail(const std::exception_ptr& error, const std::string& context);
  std::string describe_bucket(std::size_t index) const;

  // The end of a step (finish.cpp).
  void handle_unmarked();
  void zero_unused(std::size_t parameter);
  void wait_for_bucket(std::size_t index);
  Milliseconds hook_timeout() const;
  Milliseconds stall_timeout() const;
  bool wait_for_launched();
  void write_back(Bucket& bucket, std::size_t index);
  void allreduce_unused();
  static void copy_to_gradient(GradSlot& slot, kernel::StoreMode stores);
  void restore_unused();
  void end_hook_step();
  void reset_step();
  void close_step();
  void write_stats(Clock::time_point backward_end);

  /// Runs the reducer's own collectives, while none of its hooks runs, at their turn among the buckets of other
  /// reducers on the group. An error breaks the reducer, because the ranks may no longer be in the same state.
  void run_control_collective(const char* what, const std::function<void()>& collectives);

  std::unordered_map<std::string_view, std::size_t> index_by_name_;
  std::vector<std::size_t> trainable_;         ///< indices of the trainable parameters
  std::vector<ParamProgress> param_progress_;  ///< by parameter
  std::vector<GradSlot> slots_;
  std::shared_ptr<Tensor> bucket_memory_;           ///< memory of all buckets, large enough for any bucket order
  std::shared_ptr<AllreduceHook> plain_allreduce_;  ///< the hook, if it is AllreduceHook
  kernel::StoreMode stores_ = kernel::StoreMode::automatic;  ///< for copies of gradients

  std::mutex step_mutex_;
  std::atomic<bool> step_open_ = false;
  std::uint64_t step_ = 0;
  std::optional<std::uint32_t> compared_step_id_;  ///< the caller's id of this step
  Clock::time_point step_begin_;
  // Gradients are scaled by at most 1 before the reduction, and results by the remaining factor, so that no
  // intermediate value overflows unless the result does.
  double weight_ = 1;        ///< this rank's weight relative to the largest; applied before the hook
  double weight_scale_ = 1;  ///< world size divided by the sum of the relative weights
  double scale_ = 1;         ///< scale factor for this step's results
  bool learning_graph_ = false;
  bool rebuild_pending_ = false;
  bool rebuilt_ = false;         ///< the buckets were rebuilt since the last step
  bool recording_order_ = true;  ///< this step decides the bucket order
  bool views_exposed_ = false;   ///< gradient() returned a view
  bool reduced_ = false;         ///< the buckets hold the results of a finished step
  std::atomic<std::uint64_t> num_arrivals_ = 0;
  bool joined_ = false;  ///< this rank shadows the others' steps at the end of a join
  std::optional<JoinOptions> join_;

  std::mutex mutex_;
  std::condition_variable done_cv_;
  bool launch_deferred_ = false;  ///< buckets are queued only in finalize()
  std::size_t next_bucket_ = 0;   ///< the first bucket that is not queued
  const int lanes_;
  const std::shared_ptr<hook::BucketScheduler> scheduler_;  ///< shared with all reducers and DDP hooks on the group
  std::exception_ptr failure_;
};

}  // namespace hookline::reducer
