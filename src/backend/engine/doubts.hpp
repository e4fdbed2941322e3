// Decides when a disconnected peer is dead: only after all messages it sent have been drained.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <hookline/core/deadline.hpp>

namespace hookline::engine {

// How long a disconnected peer stays suspect, so that its last messages, or those of other ranks, can explain the
// disconnect: at least kSuspectGrace; at most kMaxSuspectGrace if the listener thread has not polled since.
inline constexpr Milliseconds kExplain{300};
inline constexpr Milliseconds kExplainBusy{850};
inline constexpr Milliseconds kTake{50};  // to drain received messages once the listener thread has polled

/// The failure detector of point-to-point operations. A disconnected peer is suspect; a message received from it
/// restarts the suspicion. It is dead once the grace time has passed without a message and the listener thread has
/// polled. Peers that said goodbye are not observed. Guarded by the mutex of the ControlChannel.
class Doubts {
 public:
  /// The state of a peer as seen by this rank; `poll_epoch` counts the polls of the listener thread.
  struct Seen {
    bool lost;
    std::uint64_t heard;
    std::uint64_t looks;
  };
  enum class Verdict : std::uint8_t { well, doubted_from_now, doubted, dead };

  explicit Doubts(int size) : doubts_(static_cast<std::size_t>(size)) {}

  /// Returns the state of a peer. On `newly_suspect` the caller must poke the listener thread.
  Verdict judge(int rank, Seen seen, Clock::time_point now);

 private:
  struct Doubt {
    Clock::time_point since;
    Seen seen;  ///< at `since`
    std::optional<Clock::time_point> looked_at;
  };
  std::vector<std::optional<Doubt>> doubts_;
};

}  // namespace hookline::engine
