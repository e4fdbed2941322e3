// Which instruction sets the library's loops use on this processor.
#pragma once

#include <string>
#include <vector>

#include <hookline/core/export.hpp>

namespace hookline {

/// The names of the instruction sets that the loops are compiled for and this processor can run, best last: the last
/// one is used. "baseline" is what the compiler may assume anyway. Results have the same bits on all of them.
HOOKLINE_EXPORT std::vector<std::string> cpu_targets();

}  // namespace hookline
