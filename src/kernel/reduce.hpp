// Combines the ranks' arrays element by element, at the speed of memory.
#pragma once

#include <cstddef>
#include <span>

#include <hookline/core/dtype.hpp>
#include <hookline/core/reduce_op.hpp>

#include "kernel/stores.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// Combines N >= 1 arrays of `count` elements in the order given and writes the result to every destination, with the
/// arithmetic that ReduceOp describes. A destination may be the same pointer as any source; other overlap is not
/// allowed. Destinations are aligned to the element size, sources lie anywhere. The bits of the result depend neither
/// on the processor's vector width, nor on alignment, nor on how a caller cuts a range into pieces. Throws
/// InvalidArgument as check(op, dtype).
///
/// Streaming stores are used only for destinations that are not sources and are all at the same offset in a cache line.
/// The target must be among supported_targets().
void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, std::size_t count, Stores stores = Stores::automatic,
            Target target = best_target());

/// Adds one array to another, with the same arithmetic.
inline void add(DType dtype, std::byte* to, const std::byte* from, std::size_t count) {
  const std::byte* const sources[] = {to, from};
  reduce(ReduceOp::sum, dtype, sources, {&to, 1}, count);
}

}  // namespace hookline::kernel
