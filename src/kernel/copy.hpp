// Copies bytes at the speed of memory, whatever the alignment of the two sides to each other.
#pragma once

#include <cstddef>

#include "kernel/stores.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// Copies `bytes` bytes; the ranges do not overlap.
void copy(std::byte* to, const std::byte* from, std::size_t bytes, Stores stores = Stores::automatic);

/// The same with the code of one target, which must be among supported_targets().
void copy_on(Target target, std::byte* to, const std::byte* from, std::size_t bytes, Stores stores = Stores::automatic);

}  // namespace hookline::kernel
