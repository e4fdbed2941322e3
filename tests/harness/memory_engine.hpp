// An engine whose ranks are threads of one process: what an engine takes, on a page, and a way to test what is common.
#pragma once

#include <memory>
#include <vector>

#include <hookline/backend/engine.hpp>

namespace hookline::testing {

/// The engines of a new group of so many ranks, in rank order. `clogging`: as where all messages between two ranks
/// share a connection, nothing comes from a rank any more that has given up a message to the receiver.
std::vector<std::shared_ptr<Engine>> make_memory_engines(int size, bool clogging = false);

}  // namespace hookline::testing
