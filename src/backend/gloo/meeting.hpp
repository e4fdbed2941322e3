// How ranks find each other's sockets in the store.
#pragma once

#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/store/store.hpp>

namespace hookline::gloo_engine {

using Addresses = std::vector<std::vector<char>>;  ///< by peer; as Gloo writes them

/// Publishes where each peer finds this rank, and returns where this rank finds each peer. Timeout naming the ranks
/// that did not come, Mismatch where one published something else.
Addresses exchange_addresses(Store& store, int rank, int size, const Addresses& own, Clock::time_point deadline);

}  // namespace hookline::gloo_engine
