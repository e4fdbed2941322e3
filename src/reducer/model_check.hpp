// Whether all ranks train the same model.
#pragma once

#include <string>
#include <vector>

#include <hookline/group/process_group.hpp>

namespace hookline::reducer {

/// Compares the lines of all ranks, each of which says something that must be the same. Throws Mismatch on every rank,
/// listing the first differences, where they are not. Every rank calls it.
void check_same_on_all_ranks(ProcessGroup& group, const std::vector<std::string>& lines);

}  // namespace hookline::reducer
