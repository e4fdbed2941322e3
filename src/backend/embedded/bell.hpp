// Futex-based events: blocks until a peer signals a change, and wakes blocked threads.
#pragma once

#include <hookline/core/deadline.hpp>

#include "backend/embedded/memory.hpp"

namespace hookline::embedded {

/// Wakes a rank's sleepers. Whatever they wait for must have been stored with memory_order_seq_cst before, or with a
/// fence of that order behind it.
void ring(RankBlock& block) noexcept;
/// The same for every other rank.
void ring_peers(Memory& memory) noexcept;

/// While this lives its rank counts as asleep, so that what changes rings. Look once more after making it, then sleep.
class Sleep {
 public:
  explicit Sleep(RankBlock& block) noexcept;
  Sleep(const Sleep&) = delete;
  Sleep& operator=(const Sleep&) = delete;
  ~Sleep();

  /// Returns when the bell rings, rang since this was made, or after the time.
  void until_rung(Milliseconds at_most) noexcept;

 private:
  RankBlock& block_;
  std::uint32_t seen_;
};

}  // namespace hookline::embedded
