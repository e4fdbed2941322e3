// Ranks that are threads of one process.
#pragma once

#include <memory>
#include <vector>

#include <hookline/backend/backend.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// The backends of a new group of `size` ranks, in rank order, each to be used by a thread of its own. InvalidArgument
/// for a size that is not 1 to 512.
HOOKLINE_EXPORT std::vector<std::shared_ptr<Backend>> make_threads_backends(int size);

}  // namespace hookline
