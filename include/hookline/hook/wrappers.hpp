// Hooks around hooks: casts, error feedback, rules for parameters, and what helps with finding mistakes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <hookline/core/dtype.hpp>
#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// The inner hook gets the bucket cast to float16 or bfloat16; its result is cast back. Errors that the inner hook
/// keeps are of the cast values. InvalidArgument for another dtype.
HOOKLINE_EXPORT HookPtr cast_around(HookPtr inner, DType dtype, std::shared_ptr<ProcessGroup> group);

/// Adds what the inner hook loses of this rank's gradients to those of the next step. A hook with keep_error does it
/// itself. Around any other, the gradients minus the contribution that the hook reports are kept: the hook declares
/// HookTraits::reports_contribution and calls GradBucket::set_contribution, else InvalidArgument. A hook inside other
/// wrappers is fed back inside them.
HOOKLINE_EXPORT HookPtr error_feedback(HookPtr inner);

/// Which parameters a rule is for. What is not given holds for all.
struct HOOKLINE_EXPORT ParameterRule {
  std::string name = "*";  ///< a pattern of fnmatch: * stands for any letters, ? for one, [ab] for one of these
  std::int64_t min_size = 0;
  std::int64_t max_size = INT64_MAX;
  int dims = -1;  ///< of so many dimensions; -1: any

  bool fits(std::string_view parameter, const Dims& shape) const;
};

/// Gives the parameters that the rule is for to one hook and the rest of each bucket to another. Rules for more hooks
/// are made by putting one into another's place.
HOOKLINE_EXPORT HookPtr where(HookPtr inner, ParameterRule rule, HookPtr otherwise);

/// Calls `line` with a line of text for each bucket: sizes, times, what was sent. Standard error where none is given.
HOOKLINE_EXPORT HookPtr logged(HookPtr inner, std::function<void(const std::string&)> line = nullptr);

/// Has costs() of the inner hook tell how far the result is from the exact mean, which takes an allreduce more.
HOOKLINE_EXPORT HookPtr compared_with_exact(HookPtr inner, std::shared_ptr<ProcessGroup> group);

}  // namespace hookline
