// Hook wrappers: casts, error feedback, per-parameter hooks, logging and error measurement.
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

/// Casts the bucket to float16 or bfloat16 for the inner hook, and its result back. The inner hook's residual is that
/// of the cast values. Throws InvalidArgument for other dtypes.
HOOKLINE_EXPORT HookPtr with_cast(HookPtr inner, DType dtype, std::shared_ptr<ProcessGroup> group);

/// Error feedback: adds the compression error of this rank's gradients to those of the next step. A hook whose
/// enable_error_feedback returns true does it itself. For other hooks the residual is the gradients minus the reported
/// contribution; they must declare HookTraits::reports_contribution and call GradBucket::set_contribution, else this
/// throws InvalidArgument. Applies to the innermost hook of nested wrappers.
HOOKLINE_EXPORT HookPtr with_error_feedback(HookPtr inner);

/// Selects parameters by name, size and dimensions. Defaults match all parameters.
struct HOOKLINE_EXPORT ParameterFilter {
  std::string name = "*";  ///< an fnmatch pattern: * matches any characters, ? one, [ab] one of a set
  std::int64_t min_size = 0;
  std::int64_t max_size = INT64_MAX;
  int dims = -1;  ///< number of dimensions; -1: any

  bool matches(std::string_view parameter, const Dims& shape) const;
};

/// Runs `inner` on the parameters that match the filter and `fallback` on the rest of each bucket. Nest it for more
/// than two hooks.
HOOKLINE_EXPORT HookPtr per_parameter(HookPtr inner, ParameterFilter filter, HookPtr fallback);

/// Logs a line per bucket with its size, norms and time. `write_line` defaults to writing to standard error.
HOOKLINE_EXPORT HookPtr with_logging(HookPtr inner, std::function<void(const std::string&)> write_line = nullptr);

/// Measures the relative error of the result against the exact mean, with an additional allreduce per bucket. stats()
/// reports it.
HOOKLINE_EXPORT HookPtr with_error_measurement(HookPtr inner, std::shared_ptr<ProcessGroup> group);

}  // namespace hookline
