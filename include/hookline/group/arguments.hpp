// Local validation of an operation's arguments, before any communication.
#pragma once

#include <hookline/backend/operation.hpp>
#include <hookline/core/export.hpp>

namespace hookline {

/// Throws InvalidArgument naming the operation and the expected value. Rejects lists of the wrong length, sizes that do
/// not match, a root or peer out of range, read-only outputs, outputs that overlap an input (other than this rank's own
/// slice of it), and dtypes that the reduction does not support.
HOOKLINE_EXPORT void check_arguments(const Operation& operation, int rank, int size);

}  // namespace hookline
