// Reducer: averages gradients over the ranks of a group during the backward pass.
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
#include <hookline/hook/registry.hpp>
#include <hookline/reducer/parameter.hpp>
#include <hookline/reducer/stats.hpp>

namespace hookline {

struct NamedGradient;  // optimizer.hpp

namespace reducer {
class ReducerImpl;
}

/// The reduction of gradients over the ranks.
enum class GradientReduction : std::uint8_t {
  mean,
  /// Sums gradients. The mean of a hook is multiplied by the number of ranks; integer gradients are then rejected,
  /// because their means are rounded.
  sum,
};

struct ReducerOptions {
  BucketLimits limits = {};
  /// Treats parameters without a gradient at finalize() as unused: this rank contributes zeros, and the gradient stays
  /// untouched if no rank has one. If false, a missing gradient is an error.
  bool find_unused_parameters = false;
  /// Every step marks the same parameters equally often, as recorded in the first step.
  bool static_graph = false;
  GradientReduction reduction = GradientReduction::mean;
  bool broadcast_parameters = true;                    ///< broadcast rank 0's parameters on construction
  std::optional<Milliseconds> timeout = std::nullopt;  ///< time limit of a hook; default: the group's timeout
  /// Fixed buckets, such as buckets() of the run being resumed. Each parameter with a gradient is in exactly one
  /// bucket; a bucket has one dtype; sparse parameters have their own buckets. Overrides `limits`.
  std::optional<std::vector<ParameterIndices>> buckets = std::nullopt;
  /// Buffers of the model, such as running means. Compared and broadcast with the parameters on construction; not
  /// stored.
  std::vector<NamedTensor> buffers = {};
};

struct JoinOptions {
  /// True: divide by the world size. False: divide by the number of ranks that still have inputs.
  bool divide_by_initial_world_size = true;
};

/// Every rank creates a reducer with the same parameters and options and runs the same steps. A step calls mark_ready()
/// for each parameter, from any number of threads, then finalize(). Unless stated otherwise,
/// all other methods are called between steps, by one thread.
///
/// A gradient is either written into gradient(name), a view of its bucket, and marked, or passed to mark_ready(). A
/// passed gradient is copied into the bucket, and finalize() writes the mean back to it.
///
/// After the first step buckets are rebuilt in the order of rank 0's gradients. They are kept if gradient() exposed a
/// view, with ReducerOptions::buckets, and with find_unused_parameters without static_graph.
class HOOKLINE_EXPORT Reducer {
 public:
  /// Checks that all ranks have the same parameters and buffers, and broadcasts rank 0's, including frozen parameters.
  /// The hook may be a spec; without one, the reducer averages over all ranks. Throws InvalidArgument for duplicate
  /// names, no trainable parameters or invalid buckets, and Mismatch listing the first differences between ranks.
  Reducer(std::vector<Parameter> parameters, std::shared_ptr<ProcessGroup> group, const HookOrSpec& hook = {},
          ReducerOptions options = {});
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;
  /// Does not wait for running hooks, which keep their resources alive.
  ~Reducer();

  /// Marks a gradient as ready. Without `gradient`, the caller has written it into gradient(name). Otherwise the caller
  /// must not modify `gradient` until finalize(). May run hooks on this thread. Throws InvalidArgument if a gradient is
  /// marked twice in a step, or its shape or dtype is wrong.
  void mark_ready(std::size_t parameter);
  void mark_ready(std::size_t parameter, const Tensor& gradient);
  void mark_ready(std::size_t parameter, const SparseGradient& gradient);
  void mark_ready(std::string_view name) { mark_ready(index_of(name)); }
  void mark_ready(std::string_view name, const Tensor& gradient) { mark_ready(index_of(name), gradient); }
  void mark_ready(std::string_view name, const SparseGradient& gradient) { mark_ready(index_of(name), gradient); }

  /// Marks a parameter as unused in this rank's backward pass although it has a gradient from earlier passes. That
  /// gradient is part of the mean, and receives the mean if any rank calls mark_ready() for the parameter. Requires
  /// find_unused_parameters or static_graph. Call it before finalize(). With static_graph, from the second step on,
  /// call it before the step's first mark_ready(), on the same thread.
  void mark_unused(std::size_t parameter, const Tensor& gradient);
  void mark_unused(std::size_t parameter, const SparseGradient& gradient);

  /// Blocks until all buckets are reduced and the gradients hold the means. Throws a hook's exception, InvalidArgument
  /// naming parameters that were not marked or invalid hook results, and Timeout naming hook and bucket. After an error
  /// of a hook or the group the reducer is broken and rethrows that error.
  void finalize();

  /// Discards a step whose backward pass failed, including its gradients accumulated under no_sync. The next step gets
  /// the same step number, so it matches the step of ranks that did not discard theirs. Does nothing between steps.
  /// Throws InvalidArgument if buckets were already launched, and inside a join.
  void discard_step();

  /// Returns a view of a parameter's gradient in its bucket. Its memory is stable after the first step.
  Tensor gradient(std::size_t parameter);
  Tensor gradient(std::string_view name) { return gradient(index_of(name)); }
  /// Copies a gradient, after finalize(). Unlike gradient() it does not prevent the rebuild of the buckets.
  void copy_gradient(std::size_t parameter, const Tensor& destination) const;
  /// Returns the reduced rows of a sparse parameter in ascending order, after finalize().
  SparseGradient sparse_gradient(std::size_t parameter) const;
  SparseGradient sparse_gradient(std::string_view name) const { return sparse_gradient(index_of(name)); }

  /// Returns the dense parameters and their reduced gradients, after finalize(), without parameters that no rank used.
  /// The gradients are views of the buckets, valid until the next step; unlike gradient(), this does not prevent the
  /// rebuild of the buckets. Throws InvalidArgument unless finalize() has reduced the gradients marked last.
  std::vector<NamedGradient> reduced_gradients() const;

  std::size_t index_of(std::string_view name) const;
  const std::vector<Parameter>& parameters() const noexcept;
  /// Returns the buckets as parameter indices. They are final once the second step has begun.
  std::vector<ParameterIndices> buckets() const;
  const std::shared_ptr<ProcessGroup>& group() const noexcept;

  /// Replaces the hook, given as a spec or an object, from the next step on. Throws InvalidArgument inside a step, and
  /// for integer gradients with GradientReduction::sum.
  void replace_hook(const HookOrSpec& hook);
  HookPtr hook() const;

  /// RAII guard of gradient accumulation: while it lives, marked gradients accumulate in the buckets and finalize()
  /// sends nothing. The next step reduces the sum. The only communication in the scope is the rebuild of the buckets,
  /// in the first mark after the first step.
  class HOOKLINE_EXPORT NoSync {
   public:
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync();

   private:
    friend class Reducer;
    explicit NoSync(std::shared_ptr<reducer::ReducerImpl> impl);

    const std::shared_ptr<reducer::ReducerImpl> impl_;
    const bool previous_;
  };
  [[nodiscard]] NoSync no_sync();

  /// Sets this rank's weight in the means of the following steps: sum of w·g divided by sum of w. Every rank calls it,
  /// between steps. Throws InvalidArgument for integer gradients.
  void set_weight(double weight);

  /// Sets a caller-defined id, such as a batch number, for subsequent steps; nullopt clears it. Ranks compare ids when
  /// the first bucket is reduced: different ids fail with Mismatch before any gradient passed to mark_ready changes.
  /// Requires a group that compares calls; groups of torch.distributed with other backends need
  /// with_collective_checks(). Throws InvalidArgument unless the id is from 0 to 2^32 - 1.
  void set_step_id(std::optional<std::int64_t> id);
  std::optional<std::int64_t> step_id() const;

  /// Supports uneven inputs. Runs `body`, which runs this rank's steps, then takes part in the other ranks' steps with
  /// zero gradients (in the first of them with gradients accumulated under no_sync) until all ranks have finished.
  /// Finally broadcasts the parameters of a rank that ran the most steps. If `body` throws, the group is aborted.
  void join(const std::function<void()>& body, const JoinOptions& options = {});
  /// The two halves of join().
  void begin_join(const JoinOptions& options = {});
  void end_join();

  /// Returns statistics of the last step.
  StepStats stats() const;
  /// Returns the error that broke this reducer, or null.
  std::exception_ptr failure() const;

 private:
  std::shared_ptr<reducer::ReducerImpl> impl_;
};

}  // namespace hookline
