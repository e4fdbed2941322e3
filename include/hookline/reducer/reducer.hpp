// Averages gradients over the ranks of a group while the backward pass goes on.
#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <hookline/bucket/plan.hpp>
#include <hookline/core/deadline.hpp>
#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>
#include <hookline/reducer/parameter.hpp>
#include <hookline/reducer/stats.hpp>

namespace hookline {

namespace reducer {
class Core;
}

/// The reduction of gradients over the ranks.
enum class Mean : std::uint8_t {
  average,
  /// Without a hook the gradients are added. A hook returns the mean, and the reducer multiplies it by the number of
  /// ranks; gradients of integers, whose means are rounded, are then refused.
  sum,
};

struct ReducerOptions {
  BucketLimits limits = {};
  /// Parameters without a gradient at finalize() count as unused: zero from this rank, and untouched where no rank had
  /// one. Without it such a parameter is an error.
  bool find_unused_parameters = false;
  /// Every step marks the same parameters, equally often: the first step finds out which.
  bool static_graph = false;
  Mean mean = Mean::average;
  bool broadcast_parameters = true;                    ///< rank 0's to all, when the reducer is made
  std::optional<Milliseconds> timeout = std::nullopt;  ///< of a hook; the group's where not given
  /// The buckets to begin and to stay with, such as buckets() of the reducer of a run that is resumed. Each parameter
  /// that is not ignored is in one, with others of its dtype; sparse ones are alone. Then `limits` say nothing.
  std::optional<std::vector<BucketMembers>> buckets = std::nullopt;
  /// Buffers of the model, such as running means: compared and broadcast with the parameters when the reducer is made.
  /// It does not keep them.
  std::vector<NamedTensor> buffers = {};
};

struct JoinOptions {
  /// Whether means stay over all ranks, or are over those that still have inputs.
  bool divide_by_initial_world_size = true;
};

/// Every rank makes one with the same parameters and options, and does the same steps. A step is: mark_ready for each
/// parameter, from any number of threads, then finalize(). Everything else is called between steps, by one thread.
///
/// Gradients are either written into gradient(name), which lies in the bucket, and marked, or handed over with the
/// mark: these are copied into the bucket, and finalize() writes the mean back into them.
///
/// After the first step buckets are made anew in the order in which rank 0's gradients came, unless gradient() was
/// handed out before: then memory stays where it is. With find_unused_parameters they stay, too, except with
/// static_graph, and so do buckets that were given.
class HOOKLINE_EXPORT Reducer {
 public:
  /// Checks that all ranks have the same parameters and buffers, and broadcasts rank 0's, those of frozen parameters
  /// too. No hook means the mean of all ranks.
  /// Throws InvalidArgument for names that come twice, nothing to train, or buckets that do not fit, Mismatch listing
  /// the first differences.
  Reducer(std::vector<Parameter> parameters, std::shared_ptr<ProcessGroup> group, HookPtr hook = nullptr,
          ReducerOptions options = {});
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Waits for nobody; hooks under way keep what they need.
  ~Reducer();

  /// The gradient of a parameter is there: in gradient(name), or in `gradient`, which stays untouched until finalize().
  /// May run hooks in this thread. Throws InvalidArgument for one that comes twice in a step or does not fit.
  void mark_ready(std::size_t parameter);
  void mark_ready(std::size_t parameter, const Tensor& gradient);
  void mark_ready(std::size_t parameter, const SparseGradient& gradient);
  void mark_ready(std::string_view name) { mark_ready(index_of(name)); }
  void mark_ready(std::string_view name, const Tensor& gradient) { mark_ready(index_of(name), gradient); }
  void mark_ready(std::string_view name, const SparseGradient& gradient) { mark_ready(index_of(name), gradient); }

  /// This rank's pass does not come to the parameter, which has a gradient of earlier ones: it is part of the mean, and
  /// gets it if any rank marks the parameter. With find_unused_parameters, or in the first step of a static_graph, it
  /// is called before finalize(); in later steps of a static_graph before the first mark, by the same thread.
  void mark_unused(std::size_t parameter, const Tensor& gradient);
  void mark_unused(std::size_t parameter, const SparseGradient& gradient);

  /// Waits until all buckets are reduced; then the gradients hold the means. Throws what a hook failed with;
  /// InvalidArgument naming parameters that never became ready, and results that do not fit; Timeout naming hook and
  /// bucket. After an error of a hook or of the group this reducer repeats it.
  void finalize();

  /// Forgets the marks of a step whose backward pass failed, and what was added up under no_sync for it; the next step
  /// is this one again, also where other ranks did not drop theirs. Does nothing between steps. Throws InvalidArgument
  /// where buckets of it are under way already, as other ranks have them, and inside of a join.
  void drop_step();

  /// The place of a parameter's gradient in its bucket; stays there once the first step is over.
  Tensor gradient(std::size_t parameter);
  Tensor gradient(std::string_view name) { return gradient(index_of(name)); }
  /// Copies what is there, after finalize(); other than gradient() this lets buckets be made anew.
  void copy_gradient(std::size_t parameter, const Tensor& to) const;
  /// The reduced rows of a sparse parameter, ascending, after finalize().
  SparseGradient sparse_gradient(std::size_t parameter) const;
  SparseGradient sparse_gradient(std::string_view name) const { return sparse_gradient(index_of(name)); }

  std::size_t index_of(std::string_view name) const;
  const std::vector<Parameter>& parameters() const noexcept;
  /// The plan, as positions of parameters. It is final once the second step has begun.
  std::vector<BucketMembers> buckets() const;
  const std::shared_ptr<ProcessGroup>& group() const noexcept;

  /// Another hook from the next step on. InvalidArgument inside a step, and for gradients of integers with Mean::sum.
  void replace_hook(HookPtr hook);
  HookPtr hook() const;

  /// While one lives, gradients that are marked add up in the buckets, and finalize() sends nothing. The first step
  /// after it reduces the sum of all. Only behind the first step, when the buckets are rebuilt, the first mark waits
  /// for the other ranks.
  class HOOKLINE_EXPORT NoSync {
   public:
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync();

   private:
    friend class Reducer;
    explicit NoSync(std::shared_ptr<reducer::Core> core);

    const std::shared_ptr<reducer::Core> core_;
    const bool before_;
  };
  [[nodiscard]] NoSync no_sync();

  /// Gives this rank's gradients a weight in the means of the following steps: sum of w·g over sum of w. Every rank
  /// calls it, between steps. InvalidArgument for gradients of integers.
  void set_weight(double weight);

  /// Numbers the steps that begin from now on, by a number of the caller's such as that of the batch; nothing: no
  /// number. It is compared when the first bucket of a step is reduced: ranks with different numbers get a Mismatch
  /// that names them, and gradients that were handed over stay as they are. Only on groups that compare calls: not on
  /// groups of torch.distributed with another backend, unless `checked`. InvalidArgument unless it is from 0 to 2^32
  /// - 1.
  void set_step_id(std::optional<std::int64_t> id);
  std::optional<std::int64_t> step_id() const;

  /// For ranks with uneven inputs: runs `body`, which does this rank's steps, then takes part in the others' steps with
  /// gradients of zero (in the first of them with what it has added up under no_sync) until all ranks are through, and
  /// last takes over the parameters of a rank that did the most steps. Where body throws, the group is aborted.
  void join(const std::function<void()>& body, const JoinOptions& options = {});
  /// The two halves of it, for callers whose body is no function.
  void begin_join(const JoinOptions& options = {});
  void end_join();

  /// Of the last step.
  StepStats stats() const;
  /// Why this reducer can do no more; null while all is well.
  std::exception_ptr failure() const;

 private:
  std::shared_ptr<reducer::Core> core_;
};

}  // namespace hookline
