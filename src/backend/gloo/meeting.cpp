// A key for each pair of ranks: the address that one has for the other.
#include "backend/gloo/meeting.hpp"

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "backend/meeting.hpp"

namespace hookline::gloo_engine {
namespace {

// Ranks of another version must not connect: they would have another number of connections.
constexpr const char* kVersion = "hookline-gloo 4";

std::string address_key(int from, int to) { return fmt::format("gloo/from/{}/to/{}", from, to); }

}  // namespace

// A rank reads the addresses that the others have for it, and no more: all that all ranks have would be as many times
// that as there are ranks, for each rank and through one server.
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
  const std::vector<std::string> versions = backend::meet(store, "gloo", rank, size, kVersion, deadline);

  for (std::size_t i = 0; i < peers.size(); ++i) keys[i] = address_key(peers[i], rank);
  const std::vector<std::string> read = store.multi_get(keys);
  Addresses found(static_cast<std::size_t>(size));
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto peer = static_cast<std::size_t>(peers[i]);
    // Gloo writes all of them with the same length.
    if (versions[peer] != kVersion || read[i].size() != values[i].size()) {
      throw Mismatch(
          fmt::format("gloo: what rank {} left in the store is no address for rank {} of {}: it runs another "
                      "version of Hookline, or the store is used for something else, too",
                      peers[i], rank, size),
          {peers[i]});
    }
    found[peer].assign(read[i].begin(), read[i].end());
    store.delete_key(keys[i]);
  }
  return found;
}

}  // namespace hookline::gloo_engine
