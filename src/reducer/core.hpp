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

#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/reducer/reducer.hpp>

#include "hook/hook_lane.hpp"
#include "kernel/stores.hpp"

namespace hookline::reducer {

/// What every mark of a parameter touches, kept small since there may be thousands. `bucket` and `expected` change
/// between steps only, the others from any thread: `marks` when a mark begins, `taken` when its gradient is in place.
struct Mark {
  std::uint32_t bucket = 0;
  std::uint32_t expected = 1;  ///< marks that make it ready
  std::atomic<std::uint32_t> marks = 0;
  std::atomic<std::uint32_t> taken = 0;
  bool dense = false;        ///< neither ignored nor sparse
  bool unused = false;       ///< no rank has a gradient for it, in this step or in this graph
  bool accumulated = false;  ///< the view holds a sum from under no_sync
  bool older = false;        ///< this rank's part is a gradient of earlier passes
  bool keeps = false;        ///< its slot holds something until the end of the step
};

/// A parameter's place, and what a step keeps for it. `memory` and `view` change between steps only; the thread that
/// marks writes the rest, and finalize() reads it after the bucket's count has come to zero.
struct Slot {
  std::byte* memory = nullptr;
  Tensor view;
  std::uint64_t arrival = 0;   ///< when it came, in the step that decides the order
  std::byte* given = nullptr;  ///< where the mean is to be written back, in one piece
  std::shared_ptr<void> given_owner;
  std::optional<Tensor> given_strided;  ///< the same for another layout
  bool shown = false;                   ///< the view was handed out
  std::optional<Tensor> saved;          ///< what an unused parameter's view held, where somebody may look
  std::vector<SparseGradient> sparse;
  std::optional<SparseGradient> reduced;
};

/// One bucket. States, in order: filling (missing > 0), full, launched, done. Any thread moves it to full; the one
/// thread that launches to launched; the thread that completes its hook's Future to done, under the mutex.
/// finalize() moves it back, when it is done or nothing of it was launched.
struct Bucket {
  BucketMembers members;
  std::shared_ptr<const BucketLayout> layout;
  Tensor memory;
  bool sparse = false;
  std::atomic<std::size_t> missing = 0;
  std::atomic<bool> gives_back = false;  ///< a gradient was handed over, and gets the mean
  Clock::time_point ready_at;            ///< written by who makes it full
  int lane = 0;
  bool launched = false;
  bool done = false;
  Clock::time_point launched_at, done_at;
  std::optional<GradBucket> view;  ///< what the hook gets
  WorkPtr work;                    ///< of the plain mean, which needs no Future
  HookResult result;
  std::shared_ptr<std::atomic<std::uint64_t>> sent;
};

/// Steps: idle, open from the first mark on, idle again at the end of finalize(). `step_mutex_` guards the opening;
/// finalize() and everything between steps belongs to one thread of the user's. `mutex_` guards launching, the buckets'
/// later states and the failure; no hook and no collective runs under it.
class Core : public std::enable_shared_from_this<Core> {
 public:
  Core(std::vector<Parameter> given, std::shared_ptr<ProcessGroup> of, HookPtr with, ReducerOptions how);

  void start(const std::vector<NamedTensor>& buffers);
  std::vector<BucketMembers> current_plan() const;
  std::size_t index_of(std::string_view name) const;
  void mark(std::size_t parameter);
  void mark(std::size_t parameter, const Tensor& gradient);
  void mark(std::size_t parameter, const SparseGradient& gradient);
  void mark_unused(std::size_t parameter, const Tensor& gradient);
  void mark_unused(std::size_t parameter, const SparseGradient& gradient);
  void finalize();
  void drop_step();
  Tensor gradient(std::size_t parameter);
  void copy_gradient(std::size_t parameter, const Tensor& to) const;
  SparseGradient sparse_gradient(std::size_t parameter) const;
  void set_hook(HookPtr replacement);
  void set_weight(double weight);
  void begin_join(const JoinOptions& how);
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
  std::vector<Tensor> reduced_tensors() const;
  void check_parameter(std::size_t parameter) const;
  static std::string listed(const std::vector<std::string_view>& names);  ///< the first of them, for an error
  void throw_if_failed();

  void check_may_join(const char* caller) const;
  /// InvalidArgument where one of the gradients is of integers: `reason` tells what they cannot be used with.
  void refuse_integers(const std::string& reason) const;

  // Opening a step, and marks (core.cpp).
  bool open_step(bool active);
  bool may_mark(std::size_t parameter);
  void marked(std::size_t parameter, bool counts);
  void check_gradient(std::size_t parameter, const Tensor& gradient) const;
  void check_gradient(std::size_t parameter, const SparseGradient& gradient) const;
  void check_parts(std::size_t parameter, const Tensor& gradient) const;
  void keep_rows(std::size_t parameter, const SparseGradient& gradient);
  bool may_be_unused(std::size_t parameter);
  void take(std::size_t parameter, const Tensor& gradient);
  void count_ready(std::size_t parameter);

  // Buckets and their order (layout.cpp).
  void allocate();
  void build(const std::vector<BucketMembers>& plan);
  void check_given_buckets() const;
  void rebuild_if_due();
  std::vector<std::size_t> backwards() const;
  std::vector<std::size_t> agreed_order();
  std::vector<BucketMembers> plan_of(const std::vector<std::size_t>& order) const;

  // Hooks (launch.cpp).
  void launch();
  HookStep hook_step() const;
  ReduceOp plain_op() const { return options.mean == Mean::sum ? ReduceOp::sum : ReduceOp::avg; }
  void run(Bucket& bucket, std::size_t index);
  Future<HookResult> run_sparse(Bucket& bucket, std::size_t index);
  void hook_done(Bucket& bucket, std::size_t index, const std::exception_ptr& error, HookResult result);
  void fail(const std::exception_ptr& error, const std::string& where);
  std::string describe(std::size_t index) const;

  // The end of a step (finish.cpp).
  void take_care_of_unmarked();
  void set_aside(std::size_t parameter);
  void wait_for(std::size_t index);
  bool wait_for_launched();
  void write_back(Bucket& bucket, std::size_t index);
  void agree_on_unused();
  static void give_back(Slot& slot, kernel::Stores stores);
  void put_back_unused();
  void end_hooks();
  void give_up_step();
  void close_step();
  void write_stats(Clock::time_point backward_end);

  /// Runs collectives of the reducer's own, which it does while no hook runs. What they fail with fails the reducer:
  /// the ranks may then have understood different things.
  void agree(const char* what, const std::function<void()>& collectives);

  std::unordered_map<std::string_view, std::size_t> names_;
  std::vector<std::size_t> reduced_;  ///< the parameters that have gradients, as positions
  std::vector<Mark> marks_;           ///< by parameter, as the next
  std::vector<Slot> slots_;
  std::shared_ptr<Tensor> memory_;        ///< bytes for all buckets, however the gradients are put into them
  std::shared_ptr<AllreduceHook> plain_;  ///< the hook, where it is the plain mean
  kernel::Stores stores_ = kernel::Stores::automatic;  ///< of copies of gradients

  std::mutex step_mutex_;
  std::atomic<bool> open_ = false;
  std::uint64_t step_ = 0;
  std::optional<std::uint32_t> compared_id_;  ///< the caller's number of this step
  Clock::time_point begun_;
  // Gradients are multiplied by at most 1 before they are reduced, and the result by the rest: nothing overflows that
  // the result does not.
  double weight_ = 1;        ///< of this rank, relative to the largest of all ranks; before the hook
  double weight_scale_ = 1;  ///< the number of ranks over the sum of these weights
  double scale_ = 1;         ///< of this step's results
  bool learning_graph_ = false;
  bool rebuild_due_ = false;
  bool rebuilt_ = false;   ///< since the last step
  bool recording_ = true;  ///< arrivals count
  bool pinned_ = false;    ///< views were handed out
  std::atomic<std::uint64_t> arrivals_ = 0;
  bool shadowing_ = false;  ///< takes part in the steps of others at the end of a join
  std::optional<JoinOptions> join_;

  std::mutex mutex_;
  std::condition_variable done_;
  bool held_ = false;  ///< nothing is launched before finalize()
  std::size_t next_ = 0;
  hook::Launcher launcher_;
  std::exception_ptr failure_;
};

}  // namespace hookline::reducer
