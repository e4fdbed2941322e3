// Instruction sets that the kernels are compiled for.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace hookline::kernel {

/// The compiler's default target, 256-bit and 512-bit vectors. Kernels are memory-bound, so more targets would not
/// make them faster.
enum class Target : std::size_t { baseline, avx2, avx512 };

/// Returns the targets that this processor supports, in ascending order. Only the baseline on non-x86 processors.
std::span<const Target> supported_targets() noexcept;

inline Target best_target() noexcept { return supported_targets().back(); }

std::string_view name(Target target) noexcept;

}  // namespace hookline::kernel
