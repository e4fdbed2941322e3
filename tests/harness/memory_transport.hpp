// An in-process transport for tests, and a minimal example of a transport.
#pragma once

#include <memory>
#include <vector>

#include <hookline/backend/transport.hpp>

namespace hookline::testing {

/// Creates the transports of a new group of `size` ranks, in rank order. With `block_after_cancel`, a canceled send
/// blocks all later messages from its sender to its receiver, as if all messages shared one connection.
std::vector<std::shared_ptr<Transport>> make_memory_transports(int size, bool block_after_cancel = false);

}  // namespace hookline::testing
