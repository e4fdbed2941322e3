// Allgather through a store, for ranks that create a group. Header-only, because transports are separate libraries.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <hookline/core/deadline.hpp>
#include <hookline/core/error.hpp>
#include <hookline/store/store.hpp>

#include "backend/bootstrap.hpp"

namespace hookline::backend {

/// The value of a rank that did not join in time. Values of other ranks begin with kPresentPrefix, so they are neither
/// empty nor equal to kMissing.
inline constexpr const char* kMissing = "absent";
inline constexpr char kPresentPrefix = '=';

/// Sets the key if it has no value, and returns its value: the first writer wins. Not atomic on a store without
/// compare_set: there, a rank that joins too late may be counted as present.
inline std::string set_once(Store& store, const std::string& key, const std::string& value) {
  try {
    return store.compare_set(key, "", value);
  } catch (const Unsupported&) {
    if (!store.check({key})) store.set(key, value);
    return store.get(key);
  }
}

/// Waits until all present ranks have acknowledged the failure, at most one second: this process may serve the store
/// and exit after the error.
inline void await_failure_acks(Store& store, const std::string& kind, int rank,
                               const std::vector<std::string>& values) {
  constexpr Milliseconds kAckTimeout = std::chrono::seconds(1);
  std::vector<std::string> ack_keys;
  for (std::size_t r = 0; r < values.size(); ++r) {
    if (values[r] != kMissing) ack_keys.push_back(fmt::format("{}/ack/{}", kind, r));
  }
  try {
    store.set(fmt::format("{}/ack/{}", kind, rank), "yes");
    store.wait(ack_keys, kAckTimeout);
  } catch (const Error&) {
    // A rank or the store is gone.
  }
}

/// Waits until the store has a key and calls check_bootstrap() meanwhile. Returns false at the deadline.
inline bool await_key(Store& store, const std::string& key, Clock::time_point deadline) {
  for (;;) {
    const Milliseconds slice = std::min(bootstrap_poll_interval(), time_left(deadline));
    const Clock::time_point end = deadline_after(slice);
    try {
      store.wait({key}, slice);
      return true;
    } catch (const Timeout&) {
      if (Clock::now() < end) throw;  // not this wait's timeout: the store does not respond
    }
    if (time_left(deadline) == Milliseconds(0)) return false;
    check_bootstrap();
  }
}

/// Counts the ranks that have read the keys; the last one deletes them.
inline void delete_keys(Store& store, const std::string& kind, const std::vector<std::string>& keys) {
  try {
    if (store.add(kind + "/read", 1) != static_cast<std::int64_t>(keys.size())) return;
    for (const std::string& key : keys) store.delete_key(key);
    for (const char* const key : {"/count", "/all", "/read"}) store.delete_key(kind + key);
  } catch (const Error&) {
    // All ranks have the values; the rank that serves the store may have exited.
  }
}

/// Publishes this rank's value and returns the values of all ranks, by rank. `kind` is the key prefix and names the
/// group in errors. The first rank that times out decides for all: every rank, even a late one, throws Timeout naming
/// the missing ranks. Throws what check_bootstrap() throws. Ranks wait for one key, "all", which the last rank sets.
inline std::vector<std::string> store_allgather(Store& store, const std::string& kind, int rank, int size,
                                                const std::string& own_value, Clock::time_point deadline) {
  std::vector<std::string> keys(static_cast<std::size_t>(size));
  for (std::size_t r = 0; r < keys.size(); ++r) keys[r] = fmt::format("{}/{}", kind, r);
  if (set_once(store, keys[static_cast<std::size_t>(rank)], kPresentPrefix + own_value) == kMissing) {
    throw Timeout(
        fmt::format("rank {} of {} joined the {} group after another rank had timed out waiting for it. Start all "
                    "ranks together or increase the timeout.",
                    global_rank(rank), size, kind),
        {global_rank(rank)});
  }
  const std::string all = kind + "/all";
  if (store.add(kind + "/count", 1) == size) {
    store.set(all, "1");
  } else if (!await_key(store, all, deadline)) {
    for (const std::string& key : keys) set_once(store, key, kMissing);
    store.set(all, "1");
  }
  std::vector<std::string> values = store.multi_get(keys);
  std::vector<int> missing;
  for (int r = 0; r < size; ++r) {
    if (values[static_cast<std::size_t>(r)] == kMissing) missing.push_back(global_rank(r));
  }
  if (missing.empty()) {
    for (std::string& value : values) value.erase(0, 1);
    delete_keys(store, kind, keys);
    return values;
  }
  await_failure_acks(store, kind, rank, values);
  throw Timeout(fmt::format("rank {} did not join the {} group of {} ranks; rank {} timed out waiting for it",
                            fmt::join(missing, ", "), kind, size, global_rank(rank)),
                missing);
}

}  // namespace hookline::backend
