// Exchanges the ranks' socket addresses through the store.
#pragma once

#include <vector>

#include <hookline/core/deadline.hpp>
#include <hookline/store/store.hpp>

namespace hookline::gloo_transport {

using Addresses = std::vector<std::vector<char>>;  ///< by peer, in Gloo's encoding

/// Publishes the address of this rank for each peer and returns the address of each peer for this rank. Throws Timeout
/// naming the ranks that did not join, and Mismatch for a value that is not an address.
Addresses exchange_addresses(Store& store, int rank, int size, const Addresses& own, Clock::time_point deadline);

}  // namespace hookline::gloo_transport
