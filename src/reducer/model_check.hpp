// Model check: verifies that all ranks have the same parameters, buffers and options.
#pragma once

#include <string>
#include <vector>

#include <hookline/group/process_group.hpp>

namespace hookline::reducer {

/// Compares the lines of all ranks. Throws Mismatch on every rank, listing the first differences, if they are not
/// equal. Every rank calls it.
void check_same_on_all_ranks(ProcessGroup& group, const std::vector<std::string>& lines);

}  // namespace hookline::reducer
