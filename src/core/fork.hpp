// Tells whether this process is a forked child of the one that made something.
#pragma once

#include <cstdint>

namespace hookline::core {

/// Another number in a forked child than in its parent. Cheap: no system call.
std::uint64_t fork_generation();

}  // namespace hookline::core
