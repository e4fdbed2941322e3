// Whether a call makes sense on its own, before any peer is asked.
#pragma once

#include <hookline/backend/collective.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// Throws InvalidArgument, naming the operation and what it expects, for a call that cannot be right: lists of the
/// wrong length, sizes that do not fit, a root or peer that does not exist, an output that is read-only or overlaps an
/// input (unless it is this rank's own slice of it), a dtype that the reduction cannot take.
HOOKLINE_EXPORT void check_arguments(const Collective& collective, int rank, int size);

}  // namespace hookline
