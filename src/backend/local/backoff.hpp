// Backoff of a waiting thread: spin, yield, then block.
#pragma once

#include <sched.h>

#include <cstdint>

#include <hookline/core/deadline.hpp>

#include "core/spin.hpp"

namespace hookline::local {

/// The phases of a Backoff.
enum class BackoffPhase : std::uint8_t { spin, yield, block };

/// The backoff of a waiting thread: spins for about a microsecond, then yields, then asks the caller to block. If ranks
/// outnumber cores it must not spin, since the awaited rank may need this core. If the peers are not expected soon it
/// must not yield either: the kernel counts a yielding thread as running and queues other threads on other cores.
/// Yielding lasts longer than the wake-up of a sleeper; otherwise ranks that work on the same tensor put each other to
/// sleep in turns. The yielding phase has a time limit, because a yielding thread does not check for dead peers, and on
/// a busy host one yield may last for the time slices of all other threads.
class Backoff {
 public:
  explicit Backoff(BackoffPhase first_phase) noexcept
      : first_count_(first_phase == BackoffPhase::spin    ? 0
                     : first_phase == BackoffPhase::yield ? kSpins
                                                          : kSpins + kYields) {
    reset();
  }

  void reset() noexcept { count_ = first_count_; }

  /// Spins or yields once. Returns false when the thread should block.
  bool pause() noexcept {
    if (count_ >= kSpins + kYields) return false;
    if (count_ < kSpins) {
      core::spin_pause();
    } else {
      if (count_ == kSpins) yield_deadline_ = Clock::now() + kMaxYieldTime;
      sched_yield();
      if (Clock::now() > yield_deadline_) count_ = kSpins + kYields;
    }
    ++count_;
    return true;
  }

 private:
  static constexpr int kSpins = 40;
  static constexpr int kYields = 500;
  static constexpr std::chrono::milliseconds kMaxYieldTime{2};

  const int first_count_;
  int count_ = 0;
  Clock::time_point yield_deadline_{};
};

}  // namespace hookline::local
