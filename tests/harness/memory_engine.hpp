// An engine whose ranks are threads of one process: what an engine takes, on a page, and a way to test what is common.
#pragma once

#include <memory>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::testing {

/// The engines of a new group of so many ranks, in rank order.
std::vector<std::shared_ptr<Engine>> make_memory_engines(int size);

}  // namespace hookline::testing
