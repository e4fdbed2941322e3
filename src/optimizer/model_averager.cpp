// Model averagers: schedules and groups.
#include <hookline/optimizer/model_averager.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/subgroups.hpp>

namespace hookline {

ModelAverager::ModelAverager(std::int64_t warmup_steps, std::shared_ptr<ProcessGroup> group)
    : warmup_steps_(static_cast<std::uint64_t>(warmup_steps)), group_(std::move(group)) {
  if (warmup_steps < 0) {
    throw InvalidArgument(fmt::format("Arg ``warmup_steps`` must be a non-negative number. Got {}.", warmup_steps));
  }
  if (!group_) throw InvalidArgument("ModelAverager: group must not be null");
}

ModelAverager::~ModelAverager() = default;

bool ModelAverager::average_parameters(const std::vector<Tensor>& parameters) {
  ProcessGroup* const group = step_ >= warmup_steps_ ? group_for_step(step_) : nullptr;
  if (group) hookline::average_parameters(*group, parameters);
  ++step_;
  return group != nullptr;
}

PeriodicModelAverager::PeriodicModelAverager(std::int64_t period, std::int64_t warmup_steps,
                                             std::shared_ptr<ProcessGroup> group)
    : ModelAverager(warmup_steps, std::move(group)), period_(static_cast<std::uint64_t>(period)) {
  if (period < 1) {
    throw InvalidArgument(fmt::format("Arg ``period`` must be a positive value. Got {}.", period));
  }
}

ProcessGroup* PeriodicModelAverager::group_for_step(std::uint64_t step) const {
  return (step - warmup_steps()) % period_ == 0 ? group().get() : nullptr;
}

HierarchicalModelAverager::HierarchicalModelAverager(const std::vector<Level>& levels, std::int64_t warmup_steps,
                                                     const std::shared_ptr<ProcessGroup>& group)
    : ModelAverager(warmup_steps, group) {
  if (levels.empty()) {
    throw InvalidArgument(
        "Arg ``period_group_size_dict`` must not be empty. Give it a period and a group size for each level");
  }
  const int ranks = group->size();
  std::int64_t previous_period = 0;
  for (const Level& level : levels) {
    if (level.period <= previous_period) {
      throw InvalidArgument(
          previous_period == 0
              ? fmt::format("The minimum period in arg ``period_group_size_dict`` must be a positive value. Got {}.",
                            level.period)
              : fmt::format("The periods in arg ``period_group_size_dict`` must be ascending: {} follows {}",
                            level.period, previous_period));
    }
    previous_period = level.period;
    if (level.group_size < 1 || ranks % level.group_size != 0) {
      throw InvalidArgument(
          fmt::format("The group size {} in arg ``period_group_size_dict`` must divide the {} ranks of the group",
                      level.group_size, ranks));
    }
  }
  if (levels.back().group_size != ranks) {
    throw InvalidArgument(fmt::format(
        "The last value in arg ``period_group_size_dict`` {} must be equal to the size of arg ``process_group`` {}.",
        levels.back().group_size, ranks));
  }
  for (const Level& level : levels) {
    levels_.emplace_back(static_cast<std::uint64_t>(level.period), fixed_size_subgroup(group, level.group_size));
  }
}

ProcessGroup* HierarchicalModelAverager::group_for_step(std::uint64_t step) const {
  const auto found =
      std::find_if(levels_.rbegin(), levels_.rend(), [&](const auto& level) { return step % level.first == 0; });
  return found == levels_.rend() ? nullptr : found->second.get();
}

}  // namespace hookline
