// Element-wise reduction of several arrays.
#pragma once

#include <cstddef>
#include <span>

#include <hookline/core/dtype.hpp>
#include <hookline/core/reduce_op.hpp>

#include "kernel/store_mode.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// Reduces N >= 1 arrays of `count` elements in the given order, with the arithmetic of ReduceOp, and writes the result
/// to every destination. A destination may equal a source; no other overlap is allowed. Destinations must be aligned to
/// the element size, sources may be misaligned. The result is bitwise independent of vector width, alignment and how a
/// range is split. Throws InvalidArgument like check(op, dtype).
///
/// Streams only if no destination is a source and all have the same offset in a cache line. The target must be among
/// supported_targets().
void reduce(ReduceOp op, DType dtype, std::span<const std::byte* const> sources,
            std::span<std::byte* const> destinations, std::size_t count, StoreMode store_mode = StoreMode::automatic,
            Target target = best_target());

/// Adds an array to another.
inline void add(DType dtype, std::byte* to, const std::byte* from, std::size_t count) {
  const std::byte* const sources[] = {to, from};
  reduce(ReduceOp::sum, dtype, sources, {&to, 1}, count);
}

}  // namespace hookline::kernel
