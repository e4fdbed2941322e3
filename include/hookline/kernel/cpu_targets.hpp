// Instruction sets that the kernels use on this processor.
#pragma once

#include <string>
#include <vector>

#include <hookline/core/export.hpp>

namespace hookline {

/// Returns the names of the compiled instruction sets that this processor supports, in ascending order. The kernels use
/// the last one. "baseline" is the compiler's default target. Results are bitwise identical on all of them.
HOOKLINE_EXPORT std::vector<std::string> cpu_targets();

}  // namespace hookline
