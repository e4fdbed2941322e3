// The errors that all stores word alike.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <hookline/store/store.hpp>

namespace hookline::store {

/// Throws Timeout naming the operation, what it waited for, the store and how long.
[[noreturn]] void throw_timeout(const Store& store, std::string_view operation, std::string_view key,
                                Milliseconds waited);

/// Those of `keys` that the store does not have now, for the text of an error: the first few by name.
std::string missing(Store& store, const std::vector<std::string>& keys);

/// The error of a queue_pop that may not wait, on an empty queue.
[[noreturn]] void throw_queue_empty(const Store& store, std::string_view key);

/// Throws InvalidArgument where nobody would come to a barrier.
void check_world_size(const Store& store, std::string_view key, std::int64_t world_size);

/// Throws InvalidArgument unless `world_size` is from 1 to kMaxWorldSize. The error names the caller `where` and the
/// argument or environment variable `name`.
void check_world_size_range(std::string_view where, std::string_view name, std::int64_t world_size);

/// Throws InvalidArgument where multi_set is given more or fewer values than keys.
void check_pairs(const Store& store, const std::vector<std::string>& keys, const std::vector<std::string>& values);

}  // namespace hookline::store
