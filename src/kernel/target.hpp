// The instruction sets that the kernels are compiled for, and which of them this processor can run.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

namespace hookline::kernel {

/// Memory is the limit, so three widths will do: what the compiler may assume anyway, 256 bits and 512 bits.
enum class Target : std::size_t { baseline, avx2, avx512 };

/// The targets that this processor can run, the best one last. On processors other than x86 the baseline alone.
std::span<const Target> supported_targets() noexcept;

inline Target best_target() noexcept { return supported_targets().back(); }

std::string_view name(Target target) noexcept;

}  // namespace hookline::kernel
