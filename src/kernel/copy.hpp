// Memory copies with optional streaming stores, for any alignment.
#pragma once

#include <cstddef>

#include "kernel/store_mode.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// Copies `bytes` bytes; the ranges must not overlap. The target must be among supported_targets().
void copy(std::byte* to, const std::byte* from, std::size_t bytes, StoreMode store_mode = StoreMode::automatic,
          Target target = best_target());

}  // namespace hookline::kernel
