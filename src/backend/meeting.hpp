// Ranks meet in a store: each leaves something there for the others. Inline, as engines are libraries of their own.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/deadline.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/store.hpp>

namespace hookline::backend {

/// Leaves what this rank says and returns what every one of them said, by rank. `kind` is that of the group that they
/// will be. Timeout naming the ranks that did not come.
inline std::vector<std::string> meet(Store& store, const std::string& kind, int rank, int size, const std::string& says,
                                     Clock::time_point deadline) {
  std::vector<std::string> keys(static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < keys.size(); ++r) keys[r] = fmt::format("{}/{}", kind, r);
  store.set(keys[static_cast<std::size_t>(rank)], says);
  try {
    store.wait(keys, time_left(deadline));
  } catch (const Timeout&) {
    std::vector<int> missing;
    for (int r = 0; r < size; ++r) {
      if (!store.check({keys[static_cast<std::size_t>(r)]})) missing.push_back(r);
    }
    if (!missing.empty()) {  // else they have come by now
      throw Timeout(fmt::format("rank {} did not come to the {} group of {} ranks that rank {} waits in",
                                fmt::join(missing, ", "), kind, size, rank),
                    std::current_exception());
    }
  }
  return store.multi_get(keys);
}

}  // namespace hookline::backend
