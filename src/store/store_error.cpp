// Error messages that all stores share.
#include "store/store_error.hpp"

#include <fmt/format.h>

namespace hookline::store {

namespace {

constexpr std::size_t kMaxNamedKeys = 8;

}  // namespace

DistErrorMark::~DistErrorMark() = default;

void throw_timeout(const Store& store, std::string_view operation, std::string_view key, Milliseconds waited) {
  throw StoreTimeout(fmt::format(
      "{} on {}: wait timeout after {}ms, keys: {}. Check that the process that sets the key is running, or pass a "
      "longer timeout.",
      operation, store.describe(), waited.count(), key));
}

void throw_barrier_timeout(const Store& store, std::string_view key, Milliseconds waited, std::exception_ptr cause) {
  throw StoreTimeout(fmt::format("barrier on {}: barrier timeout after {}ms, key: {}. Check that all processes call "
                                 "the barrier, or pass a longer timeout.",
                                 store.describe(), waited.count(), key),
                     std::move(cause));
}

std::string describe_missing_keys(Store& store, const std::vector<std::string>& keys) {
  std::string text;
  std::size_t named = 0;
  std::size_t more = 0;
  for (const std::string& key : keys) {
    if (named < kMaxNamedKeys && store.check({key})) continue;
    if (named == kMaxNamedKeys) {
      ++more;
    } else {
      text += (named++ == 0 ? "" : ", ") + key;
    }
  }
  // All keys may have been set after the timeout.
  if (named == 0) return fmt::format("{}", fmt::join(keys, ", "));
  return more == 0 ? text : fmt::format("{} and up to {} more", text, more);
}

void throw_queue_empty(const Store& store, std::string_view key) {
  throw QueueEmpty(fmt::format("queue_pop(\"{}\", block=false) on {}: queue is empty", key, store.describe()));
}

void check_world_size(const Store& store, std::string_view key, std::int64_t world_size) {
  if (world_size > 0) return;
  throw InvalidArgument(
      fmt::format("barrier(\"{}\") on {}: world_size must be positive, got {}", key, store.describe(), world_size));
}

void check_world_size_range(std::string_view where, std::string_view name, std::int64_t world_size) {
  if (world_size >= 1 && world_size <= kMaxWorldSize) return;
  throw InvalidArgument(
      fmt::format("{}: {} is out of range: expected 1 to {}, got {}. Set it to the number of processes.", where, name,
                  kMaxWorldSize, world_size));
}

void check_one_value_per_key(const Store& store, const std::vector<std::string>& keys,
                             const std::vector<std::string>& values) {
  if (keys.size() == values.size()) return;
  throw InvalidArgument(fmt::format("multi_set on {}: expected one value per key, got {} keys and {} values",
                                    store.describe(), keys.size(), values.size()));
}

}  // namespace hookline::store
