// Futex-based events: blocks until a peer signals a change, and wakes blocked threads.
#pragma once

#include <hookline/core/deadline.hpp>

#include "backend/local/memory.hpp"

namespace hookline::local {

/// Wakes a rank's sleepers. Whatever they wait for must have been stored with memory_order_seq_cst before, or with a
/// fence of that order behind it.
void notify(RankBlock& block) noexcept;
/// The same for every other rank.
void notify_peers(Memory& memory) noexcept;

/// While this lives its rank counts as asleep, so that what changes rings. Look once more after making it, then sleep.
class FutexWaiter {
 public:
  explicit FutexWaiter(RankBlock& block) noexcept;
  FutexWaiter(const FutexWaiter&) = delete;
  FutexWaiter& operator=(const FutexWaiter&) = delete;
  ~FutexWaiter();

  /// Returns when the bell rings, rang since this was made, or after the time.
  void wait(Milliseconds timeout) noexcept;

 private:
  RankBlock& block_;
  std::uint32_t expected_;
};

}  // namespace hookline::local
