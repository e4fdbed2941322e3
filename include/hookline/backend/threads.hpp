// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

struct ThreadsOptions {
  /// Whether collectives reach into any rank's tensors, as threads can. Without it they treat each other's memory as
  /// processes must, except for what allocate() gave: for tests of that path.
  bool reach_all_memory = true;
};

/// The backends of a new group of `size` ranks, in rank order, each to be used by a thread of its own. InvalidArgument
/// for a size that is not 1 to 64.
HOOKLINE_EXPORT std::vector<std::shared_ptr<Backend>> make_threads_backends(int size,
                                                                            const ThreadsOptions& options = {});

}  // namespace hookline
