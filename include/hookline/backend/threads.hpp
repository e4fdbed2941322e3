// The threads backend: ranks are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// Creates the backends of a new group of `size` ranks, in rank order; each rank's thread uses one. Throws
/// InvalidArgument if `size` is not 1 to 512.
HOOKLINE_EXPORT std::vector<std::shared_ptr<Backend>> make_threads_backends(int size);

}  // namespace hookline
