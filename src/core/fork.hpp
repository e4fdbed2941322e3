// Detection of fork(): an object compares the current generation with that of its creation.
#pragma once

#include <cstdint>

namespace hookline::core {

/// Returns a number that differs between a forked child and its parent. Makes no system call.
std::uint64_t fork_generation();

}  // namespace hookline::core
