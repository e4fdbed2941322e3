// Exchanges addresses through the store, with one key for each ordered pair of ranks.
#include "backend/gloo/address_exchange.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/store_allgather.hpp"

namespace hookline::gloo_transport {
namespace {

// Ranks of different versions must not connect: the number of connections may differ.
constexpr const char* kProtocolVersion = "hookline-gloo 4";

std::string address_key(int from, int to) { return fmt::format("gloo/from/{}/to/{}", from, to); }

}  // namespace

// Each rank reads only the N-1 addresses meant for it. Reading every rank's full table would be N^2 addresses a rank,
// N^3 in total, through one server.
Addresses exchange_addresses(Store& store, int rank, int size, const Addresses& own, Clock::time_point deadline) {
  std::vector<int> peers;
  std::vector<std::string> keys;
  std::vector<std::string> values;
  for (int r = 0; r < size; ++r) {
    if (r == rank) continue;
    const std::vector<char>& address = own[static_cast<std::size_t>(r)];
    peers.push_back(r);
    keys.push_back(address_key(rank, r));
    values.emplace_back(address.begin(), address.end());
  }
  store.multi_set(keys, values);
  const std::vector<std::string> versions =
      backend::store_allgather(store, "gloo", rank, size, kProtocolVersion, deadline);

  for (std::size_t i = 0; i < peers.size(); ++i) keys[i] = address_key(peers[i], rank);
  const std::vector<std::string> read = store.multi_get(keys);
  Addresses found(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto peer = static_cast<std::size_t>(peers[i]);
    // All encoded addresses have the same length.
    if (versions[peer] != kProtocolVersion || read[i].size() != values[i].size()) {
      throw Mismatch(
          fmt::format("gloo on rank {} of {}: invalid address from rank {} in the store. Run the same version of "
                      "Hookline on all ranks and use a store of its own for each group.",
                      rank, size, peers[i]),
          {peers[i]});
    }
    found[peer].assign(read[i].begin(), read[i].end());
    store.delete_key(keys[i]);
  }
  return found;
}

}  // namespace hookline::gloo_transport
