// Fork detection by a counter that the child handler of pthread_atfork increments.
#include "core/fork.hpp"

#include <pthread.h>

#include <atomic>

namespace hookline::core {
namespace {

std::atomic<std::uint64_t> generation = 0;

}  // namespace

std::uint64_t fork_generation() {
  static const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1); });
  static_cast<void>(registered);
  return generation.load(std::memory_order_relaxed);
}

}  // namespace hookline::core
