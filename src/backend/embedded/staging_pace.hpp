// Tunes at run time whether staged chunks are written with cached or non-temporal stores.
#pragma once

#include <array>
#include <optional>

#include <hookline/core/deadline.hpp>

#include "kernel/stores.hpp"

namespace hookline::embedded {

/// Cores that share a cache fetch each other's chunks from there. Between others a line that lies changed in the far
/// cache takes many times as long as one from memory. Which it is nobody tells, and it may change while a program runs.
/// So now and then some rounds are written each way, on all ranks alike, as all count rounds alike; in between chunks
/// are streamed where that was faster by far in most of the last trials. A rank may choose otherwise than its peers.
class StagingPace {
 public:
  static constexpr std::uint64_t kPeriod = 512;  ///< rounds from one trial to the next

  kernel::Stores stores(std::uint64_t round) const noexcept {
    const std::uint64_t place = round % kPeriod;
    const bool streams = place < 2 * kRounds ? place >= kRounds : streamed_[0] + streamed_[1] + streamed_[2] > 1;
    return streams ? kernel::Stores::streaming : kernel::Stores::cached;
  }

  /// Whether note() wants to know how long the round takes: the last one of either way, which finds what that way left.
  bool is_timed(std::uint64_t round) const noexcept {
    return round % kPeriod == kRounds - 1 || round % kPeriod == 2 * kRounds - 1;
  }
  void note(std::uint64_t round, Clock::duration took) noexcept {
    if (round % kPeriod < kRounds) {
      cached_took_ = took;
    } else if (cached_took_) {
      const bool streamed = 3 * took < 2 * *cached_took_;
      if (!tried_) streamed_.fill(streamed);
      tried_ = true;
      streamed_ = {streamed_[1], streamed_[2], streamed};
      cached_took_.reset();
    }
  }

 private:
  static constexpr std::uint64_t kRounds = 2;  ///< of a trial, each way

  std::optional<Clock::duration> cached_took_;
  bool tried_ = false;
  std::array<bool, 3> streamed_ = {};  ///< whether streaming was faster by far in the last trials
};

}  // namespace hookline::embedded
