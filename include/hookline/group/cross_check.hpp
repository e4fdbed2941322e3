// Cross-check: a group wrapper that runs every operation on two groups and compares the results.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

struct CrossCheckOptions {
  /// Relative tolerance, for groups that add in a different order. 0 requires bitwise equality.
  double tolerance = 0;
};

/// Wraps `group`: every operation also runs on `other`, a group of the same ranks, with copies of the tensors. The
/// caller gets the results of `group`. The work fails with an Error at the first element that differs, naming
/// operation, rank, tensor, element and both values. Messages of recv_anysource are compared in order of arrival.
/// Throws InvalidArgument if the groups differ in rank or size.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> with_cross_check(std::shared_ptr<ProcessGroup> group,
                                                               std::shared_ptr<ProcessGroup> other,
                                                               const CrossCheckOptions& options = {});

}  // namespace hookline
