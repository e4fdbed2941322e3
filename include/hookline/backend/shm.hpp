// The shm backend: ranks are processes of one host and communicate through shared memory.
#pragma once

#include <memory>

#include <hookline/backend/backend.hpp>
#include <hookline/backend/wait_policy.hpp>
#include <hookline/core/export.hpp>
#include <hookline/store/store.hpp>

namespace hookline {

/// Creates this rank's endpoint of a group of `size` processes that rendezvous in the store. Every rank calls it; it
/// blocks until all have called it. Throws InvalidArgument if `size` is not 1 to 512, Unsupported naming the ranks on
/// another host or in another network or PID namespace, Timeout naming the missing ranks, and ResourceError if memory
/// runs out. A rank that waits for its peers with WaitPolicy::spin keeps its core for a few hundred microseconds.
HOOKLINE_EXPORT std::shared_ptr<Backend> make_shm_backend(std::shared_ptr<Store> store, int rank, int size,
                                                          Milliseconds timeout = kDefaultTimeout,
                                                          WaitPolicy wait_policy = WaitPolicy::spin);

}  // namespace hookline
