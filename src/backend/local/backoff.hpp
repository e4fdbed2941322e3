// Backoff of a waiting thread: spin, yield, then block.
#pragma once

#include <sched.h>

#include <cstdint>

#include <hookline/core/deadline.hpp>

#include "core/spin.hpp"

namespace hookline::local {

/// What a thread does with its core before it sleeps.
enum class BackoffPhase : std::uint8_t { spin, yield, block };

/// Spins for about a microsecond, then yields the core for some hundred, then says that it is time to sleep. Where
/// ranks outnumber cores it does not spin: whoever is waited for may need this very core. Nor does it yield where the
/// peers are not soon there anyway: who yields is at work for the kernel, which then leaves others to queue for another
/// core. The yielding lasts longer than it takes to wake a sleeper, lest ranks that work through the same tensor put
/// each other to sleep in turns. On a busy host one yield may take as long as everybody else's time slices together, so
/// their time is bounded as well: who yields does not look for dead peers.
class Backoff {
 public:
  explicit Backoff(BackoffPhase first_phase) noexcept
      : first_count_(first_phase == BackoffPhase::spin    ? 0
                     : first_phase == BackoffPhase::yield ? kSpins
                                                          : kSpins + kYields) {
    reset();
  }

  void reset() noexcept { count_ = first_count_; }

  /// Passes a moment. False once it is time to sleep.
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
