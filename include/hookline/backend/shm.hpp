// Ranks that are processes of one host, in shared memory.
#pragma once

#include <cstdint>
#include <memory>

#include <hookline/backend/backend.hpp>
#include <hookline/core/export.hpp>
#include <hookline/store/store.hpp>

namespace hookline {

/// What a rank does while its peers are not there: keeps its core for some hundred microseconds, as they come sooner
/// than a sleeper wakes up; or sleeps at once, where they wait for something slower, and others have use for the core.
enum class ShmWaiting : std::uint8_t { spin, sleep };

/// This rank's end of a group of `size` processes that meet in the store; every rank calls it. Blocks until all have.
/// InvalidArgument for a size that is not 1 to 512, Unsupported naming the ranks that are on another host or in another
/// network or PID namespace, Timeout naming those that did not come, ResourceError where the system refuses memory.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_shm_backend(std::shared_ptr<Store> store, int rank, int size,
                                                          Milliseconds timeout = kDefaultTimeout,
                                                          ShmWaiting waiting = ShmWaiting::spin);

}  // namespace hookline
