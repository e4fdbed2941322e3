// Futex wait and wake: blocks a thread until a peer changes the awaited state.
#pragma once

#include <hookline/core/deadline.hpp>

#include "backend/local/memory.hpp"

namespace hookline::local {

/// Wakes the sleeping threads of a rank. The writer's half of the Dekker handshake in RankBlock: the awaited state must
/// be stored before, seq_cst or followed by a seq_cst fence.
void notify(RankBlock& block) noexcept;
/// Notifies every peer.
void notify_peers(Memory& memory) noexcept;

/// The waiter's half of the Dekker handshake in RankBlock. Usage: construct, check the awaited state again, then
/// wait().
class FutexWaiter {
 public:
  explicit FutexWaiter(RankBlock& block) noexcept;
  FutexWaiter(const FutexWaiter&) = delete;
  FutexWaiter& operator=(const FutexWaiter&) = delete;
  ~FutexWaiter();

  /// Blocks until a notification since the construction, or until the timeout.
  void wait(Milliseconds timeout) noexcept;

 private:
  RankBlock& block_;
  std::uint32_t expected_;
};

}  // namespace hookline::local
