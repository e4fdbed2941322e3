// A group that runs every operation on two groups and compares what comes out.
#pragma once

#include <memory>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

struct CompareOptions {
  /// The largest difference that is none, as a part of the larger magnitude: groups that add in another order differ in
  /// the last bits. 0 asks for the same bits.
  double tolerance = 0;
};

/// A group that runs every operation on `group`, whose results count, and on `other`, a group of the same ranks, with
/// copies of the tensors. The work fails with an Error at the first element that differs, naming operation, rank,
/// tensor, element and both values. What recv_anysource receives is compared as it comes. InvalidArgument where the two
/// have another rank or size.
HOOKLINE_EXPORT std::shared_ptr<ProcessGroup> compared(std::shared_ptr<ProcessGroup> group,
                                                       std::shared_ptr<ProcessGroup> other,
                                                       const CompareOptions& options = {});

}  // namespace hookline
