// The reducer's insides: its states, and who may change them.
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

#include <hookline/hook/builtin_entries.hpp>
#include <hookline/reducer/reducer.hpp>

#include "hook/bucket_scheduler.hpp"
#include "kernel/store_mode.hpp"

namespace hookline::reducer {

/// What every mark of a parameter touches, kept small since there may be thousands. `bucket` and `expected` change
/// between steps only, the others from any thread: `marks` when a mark begins, `taken` when its gradient is in place.
struct ParamProgress {
  std::uint32_t bucket = 0;
  std::uint32_t expected_marks = 1;  ///< marks that make it ready
  std::atomic<std::uint32_t> marks = 0;
  std::atomic<std::uint32_t> copied = 0;
  bool dense = false;        ///< neither ignored nor sparse
  bool unused = false;       ///< no rank has a gradient for it, in this step or in this graph
  bool accumulated = false;  ///< the view holds a sum from under no_sync
  bool stale_grad = false;   ///< this rank's part is a gradient of earlier passes
  bool needs_reset = false;  ///< its slot holds something until the end of the step
};

/// A parameter's place, and what a step keeps for it. `memory` and `view` change between steps only; the thread that
/// marks writes the rest, and finalize() reads it after the bucket's count has come to zero.
struct GradSlot {
  std::byte* data = nullptr;
  Tensor view;
  std::uint64_t arrival_order = 0;     ///< when it came, in the step that decides the order
  std::byte* writeback_ptr = nullptr;  ///< where the mean is to be written back, in one piece
  std::shared_ptr<void> writeback_owner;
  std::optional<Tensor> writeback_view;  ///< the same for another layout
  bool view_exposed = false;             ///< the view was handed out
  std::optional<Tensor> saved_grad;      ///< what an unused parameter's view held, where somebody may look
  std::vector<SparseGradient> sparse_grads;
  std::optional<SparseGradient> reduced_sparse_grad;
};

/// One bucket. States, in order: filling (missing > 0), full, launched, done. Any thread moves it to full; the one
/// thread that launches to launched; the thread that completes its hook's Future to done, under the mutex.
/// finalize() moves it back, when it is done or nothing of it was launched.
struct Bucket {
  ParameterIndices members;
  std::shared_ptr<const BucketLayout> layout;
  Tensor buffer;
  bool sparse = false;
  std::atomic<std::size_t> pending = 0;
  std::atomic<bool> needs_writeback = false;  ///< a gradient was handed over, and gets the mean
  Clock::time_point ready_at;                 ///< written by who makes it full
  int lane = 0;
  bool launched = false;
  bool done = false;
  Clock::time_point launched_at, done_at;
  std::optional<GradBucket> grad_bucket;  ///< what the hook gets
  WorkPtr work;                           ///< of the plain mean, which needs no Future
  HookResult result;
  std::shared_ptr<std::atomic<std::uint64_t>> bytes_sent;
};

/// Steps: idle, open from the first mark on, idle again at the end of finalize(). `step_mutex_` guards the opening;
/// finalize() and everything between steps belongs to one thread of the user's. `mutex_` guards launching, the buckets'
/// later states and the failure; no hook and no collective runs under it.
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
  void set_hook(HookPtr replacement);
  void set_weight(double weight);
  void begin_join(const JoinOptions& join_options);
  void end_join();
  void check_between_steps(const char* caller) const;
  std::exception_ptr failure();

  const std::vector<Parameter> parameters;
  const std::shared_ptr<ProcessGroup> group;
  const ReducerOptions options;
  HookPtr hook;
  bool no_sync = false;
  std::optional<std::uint32_t> step_id;  ///< the caller's number of the steps that begin from now on
  StepStats stats;
  std::deque<Bucket> buckets;

 private:
  std::vector<Tensor> trainable_tensors() const;
  void check_parameter(std::size_t parameter) const;
  static std::string join_names(const std::vector<std::string_view>& names);  ///< the first of them, for an error
  void throw_if_failed();

  void check_join_allowed(const char* caller) const;
  /// InvalidArgument where one of the gradients is of integers: `reason` tells what they cannot be used with.
  void require_floating_gradients(const std::string& reason) const;

  // Opening a step, and marks (core.cpp).
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
  void launch();
  HookStep hook_step() const;
  ReduceOp allreduce_op() const { return options.reduction == GradientReduction::sum ? ReduceOp::sum : ReduceOp::avg; }
  void start_hook(Bucket& bucket, std::size_t index);
  Future<HookResult> run_sparse(Bucket& bucket, std::size_t index);
  void on_hook_done(Bucket& bucket, std::size_t index, const std::exception_ptr& error, HookResult result);
  void fail(const std::exception_ptr& error, const std::string& context);
  std::string describe_bucket(std::size_t index) const;

  // The end of a step (finish.cpp).
  void handle_unmarked();
  void zero_unused(std::size_t parameter);
  void wait_for_bucket(std::size_t index);
  bool wait_for_launched();
  void write_back(Bucket& bucket, std::size_t index);
  void allreduce_unused();
  static void copy_to_gradient(GradSlot& slot, kernel::StoreMode stores);
  void restore_unused();
  void end_hook_step();
  void reset_step();
  void close_step();
  void write_stats(Clock::time_point backward_end);

  /// Runs collectives of the reducer's own, which it does while no hook runs. What they fail with fails the reducer:
  /// the ranks may then have understood different things.
  void run_control_collective(const char* what, const std::function<void()>& collectives);

  std::unordered_map<std::string_view, std::size_t> index_by_name_;
  std::vector<std::size_t> trainable_;         ///< the parameters that have gradients, as positions
  std::vector<ParamProgress> param_progress_;  ///< by parameter, as the next
  std::vector<GradSlot> slots_;
  std::shared_ptr<Tensor> bucket_memory_;           ///< bytes for all buckets, however the gradients are put into them
  std::shared_ptr<AllreduceHook> plain_allreduce_;  ///< the hook, where it is the plain mean
  kernel::StoreMode stores_ = kernel::StoreMode::automatic;  ///< of copies of gradients

  std::mutex step_mutex_;
  std::atomic<bool> step_open_ = false;
  std::uint64_t step_ = 0;
  std::optional<std::uint32_t> compared_step_id_;  ///< the caller's number of this step
  Clock::time_point step_begin_;
  // Gradients are multiplied by at most 1 before they are reduced, and the result by the rest: nothing overflows that
  // the result does not.
  double weight_ = 1;        ///< of this rank, relative to the largest of all ranks; before the hook
  double weight_scale_ = 1;  ///< the number of ranks over the sum of these weights
  double scale_ = 1;         ///< of this step's results
  bool learning_graph_ = false;
  bool rebuild_pending_ = false;
  bool rebuilt_ = false;         ///< since the last step
  bool recording_order_ = true;  ///< arrivals count
  bool views_exposed_ = false;   ///< views were handed out
  std::atomic<std::uint64_t> num_arrivals_ = 0;
  bool joined_ = false;  ///< takes part in the steps of others at the end of a join
  std::optional<JoinOptions> join_;

  std::mutex mutex_;
  std::condition_variable done_cv_;
  bool launch_deferred_ = false;  ///< nothing is launched before finalize()
  std::size_t next_bucket_ = 0;
  hook::BucketScheduler scheduler_;
  std::exception_ptr failure_;
};

}  // namespace hookline::reducer
