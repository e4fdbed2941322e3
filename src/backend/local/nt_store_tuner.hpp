// Tunes at run time whether staged chunks are written with cached or non-temporal stores.
#pragma once

#include <array>
#include <optional>

#include <hookline/core/deadline.hpp>

#include "kernel/store_mode.hpp"

namespace hookline::local {

/// Selects cached or non-temporal (streaming) stores for staging buffers. Cores with a common cache fetch each other's
/// chunks from there; between other cores a modified line takes many times as long as one from memory. The topology is
/// not known and may change at run time, so the tuner measures: every kPeriod rounds, in the same rounds on all ranks,
/// it times both kinds of stores. In between it streams if streaming was much faster in most of the last trials. Ranks
/// may select differently.
class NtStoreTuner {
 public:
  static constexpr std::uint64_t kPeriod = 512;  ///< rounds from one trial to the next

  kernel::StoreMode select_stores(std::uint64_t round) const noexcept {
    const std::uint64_t position = round % kPeriod;
    const bool use_streaming = position < 2 * kTrialRounds
                                   ? position >= kTrialRounds
                                   : streaming_won_[0] + streaming_won_[1] + streaming_won_[2] > 1;
    return use_streaming ? kernel::StoreMode::streaming : kernel::StoreMode::cached;
  }

  /// True if record() needs the duration of the round: the last one of each kind, which runs in the cache state that
  /// its kind leaves.
  bool is_timed(std::uint64_t round) const noexcept {
    return round % kPeriod == kTrialRounds - 1 || round % kPeriod == 2 * kTrialRounds - 1;
  }
  void record(std::uint64_t round, Clock::duration duration) noexcept {
    if (round % kPeriod < kTrialRounds) {
      cached_duration_ = duration;
    } else if (cached_duration_) {
      const bool streaming_faster = 3 * duration < 2 * *cached_duration_;
      if (!has_trial_) streaming_won_.fill(streaming_faster);
      has_trial_ = true;
      streaming_won_ = {streaming_won_[1], streaming_won_[2], streaming_faster};
      cached_duration_.reset();
    }
  }

 private:
  static constexpr std::uint64_t kTrialRounds = 2;  ///< rounds of each kind in a trial

  std::optional<Clock::duration> cached_duration_;
  bool has_trial_ = false;
  std::array<bool, 3> streaming_won_ = {};  ///< true if streaming was much faster, for each of the last trials
};

}  // namespace hookline::local
