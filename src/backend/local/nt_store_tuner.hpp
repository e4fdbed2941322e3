// Tunes at run time whether staged chunks are written with cached or non-temporal stores.
#pragma once

#include <array>
#include <optional>

#include <hookline/core/deadline.hpp>

#include "kernel/store_mode.hpp"

namespace hookline::local {

/// Cores that share a cache fetch each other's chunks from there. Between others a line that lies changed in the far
/// cache takes many times as long as one from memory. Which it is nobody tells, and it may change while a program runs.
/// So now and then some rounds are written each way, on all ranks alike, as all count rounds alike; in between chunks
/// are streamed where that was faster by far in most of the last trials. A rank may choose otherwise than its peers.
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

  /// Whether note() wants to know how long the round takes: the last one of either way, which finds what that way left.
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
  static constexpr std::uint64_t kTrialRounds = 2;  ///< of a trial, each way

  std::optional<Clock::duration> cached_duration_;
  bool has_trial_ = false;
  std::array<bool, 3> streaming_won_ = {};  ///< whether streaming was faster by far in the last trials
};

}  // namespace hookline::local
