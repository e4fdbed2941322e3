// Model averaging for local SGD.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// Replaces each tensor by its mean over the ranks of a group. Tensors may have any layout and different dtypes; small
/// tensors are packed. A collective call: every rank passes tensors of the same shapes and dtypes in the same order.
/// Sums are in rank order, so results are bitwise identical on all ranks. Blocks until complete.
HOOKLINE_EXPORT void average_parameters(ProcessGroup& group, const std::vector<Tensor>& parameters);

/// The base class of model averagers, which average parameters on a schedule of training steps. Every rank creates one
/// with the same arguments and calls average_parameters() once per step, after the optimizer.
class HOOKLINE_EXPORT ModelAverager {
 public:
  ModelAverager(const ModelAverager&) = delete;
  ModelAverager& operator=(const ModelAverager&) = delete;
  virtual ~ModelAverager();

  /// Averages if the schedule says so, then increments step(). Returns true if it averaged. Throws the errors of the
  /// group's operations.
  bool average_parameters(const std::vector<Tensor>& parameters);

  /// Returns the number of steps so far. Call set_step() when resuming a run.
  std::uint64_t step() const noexcept { return step_; }
  void set_step(std::uint64_t step) noexcept { step_ = step; }
  std::uint64_t warmup_steps() const noexcept { return warmup_steps_; }
  const std::shared_ptr<ProcessGroup>& group() const noexcept { return group_; }

 protected:
  /// Throws InvalidArgument for a negative warmup_steps or a null group.
  ModelAverager(std::int64_t warmup_steps, std::shared_ptr<ProcessGroup> group);

 private:
  /// Returns the group to average over in a step after the warmup, or null.
  virtual ProcessGroup* group_for_step(std::uint64_t step) const = 0;

  const std::uint64_t warmup_steps_;
  const std::shared_ptr<ProcessGroup> group_;
  std::uint64_t step_ = 0;
};

/// Averages in the first step after the warmup and every `period` steps from there.
class HOOKLINE_EXPORT PeriodicModelAverager : public ModelAverager {
 public:
  /// Throws InvalidArgument for a period below 1.
  PeriodicModelAverager(std::int64_t period, std::int64_t warmup_steps, std::shared_ptr<ProcessGroup> group);
  std::uint64_t period() const noexcept { return period_; }

 private:
  ProcessGroup* group_for_step(std::uint64_t step) const override;
  const std::uint64_t period_;
};

/// Averages over groups of several sizes. In each step, the largest period that divides the step number determines the
/// group.
class HOOKLINE_EXPORT HierarchicalModelAverager : public ModelAverager {
 public:
  struct Level {
    std::int64_t period;
    int group_size;  ///< number of consecutive ranks
  };
  /// Creates the subgroups; a collective call. Throws InvalidArgument unless there is at least one level, the periods
  /// are positive and ascending, each group size divides the size of the group, and the last one equals it.
  HierarchicalModelAverager(const std::vector<Level>& levels, std::int64_t warmup_steps,
                            const std::shared_ptr<ProcessGroup>& group);
  const std::vector<std::pair<std::uint64_t, std::shared_ptr<ProcessGroup>>>& period_groups() const noexcept {
    return levels_;
  }

 private:
  ProcessGroup* group_for_step(std::uint64_t step) const override;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<ProcessGroup>>> levels_;
};

}  // namespace hookline
