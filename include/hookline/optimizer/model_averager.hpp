// Averages the parameters of ranks that train on their own between times.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// Puts the mean over the ranks of a group in the place of each tensor, in any layout and with dtypes mixed. Small ones
/// travel together. Every rank of the group calls it with tensors of the same shapes and dtypes, in the same order, and
/// ends with the same bits: sums in rank order. Returns when all is there.
HOOKLINE_EXPORT void average_parameters(ProcessGroup& group, const std::vector<Tensor>& parameters);

/// Counts the steps of a training and averages in some of them. Every rank of the group makes one with the same
/// arguments and calls average_parameters once a step, behind the optimizer.
class HOOKLINE_EXPORT ModelAverager {
 public:
  ModelAverager(const ModelAverager&) = delete;
  ModelAverager& operator=(const ModelAverager&) = delete;
  virtual ~ModelAverager();

  /// Whether it averaged; throws what the group's operations fail with. The step is counted in the end.
  bool average_parameters(const std::vector<Tensor>& parameters);

  /// How many steps were counted; a run that is resumed sets it.
  std::uint64_t step() const noexcept { return step_; }
  void set_step(std::uint64_t step) noexcept { step_ = step; }
  std::uint64_t warmup_steps() const noexcept { return warmup_steps_; }
  const std::shared_ptr<ProcessGroup>& group() const noexcept { return group_; }

 protected:
  /// InvalidArgument for a negative warm-up, or no group.
  ModelAverager(std::int64_t warmup_steps, std::shared_ptr<ProcessGroup> group);

 private:
  /// The ranks to average over in a step behind the warm-up, or null.
  virtual ProcessGroup* group_in(std::uint64_t step) const = 0;

  const std::uint64_t warmup_steps_;
  const std::shared_ptr<ProcessGroup> group_;
  std::uint64_t step_ = 0;
};

/// In the first step behind the warm-up, and every `period` steps from there on.
class HOOKLINE_EXPORT PeriodicModelAverager : public ModelAverager {
 public:
  /// InvalidArgument for a period below 1.
  PeriodicModelAverager(std::int64_t period, std::int64_t warmup_steps, std::shared_ptr<ProcessGroup> group);
  std::uint64_t period() const noexcept { return period_; }

 private:
  ProcessGroup* group_in(std::uint64_t step) const override;
  const std::uint64_t period_;
};

/// Averages over groups of several sizes: in a step whose number several periods divide, over the group of the largest.
class HOOKLINE_EXPORT HierarchicalModelAverager : public ModelAverager {
 public:
  struct Level {
    std::int64_t period;
    int group_size;  ///< ranks one behind the other
  };
  /// Makes the smaller groups, so every rank of the group must call it. InvalidArgument where there are no levels,
  /// periods are not positive and growing, sizes do not divide the group's, or the last one is not the group's.
  HierarchicalModelAverager(const std::vector<Level>& levels, std::int64_t warmup_steps,
                            const std::shared_ptr<ProcessGroup>& whole);
  const std::vector<std::pair<std::uint64_t, std::shared_ptr<ProcessGroup>>>& period_groups() const noexcept {
    return levels_;
  }

 private:
  ProcessGroup* group_in(std::uint64_t step) const override;
  std::vector<std::pair<std::uint64_t, std::shared_ptr<ProcessGroup>>> levels_;
};

}  // namespace hookline
