// Decides when a disconnected peer is dead: only after all messages it sent have been drained.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <hookline/core/deadline.hpp>

namespace hookline::p2p {

// The time for which a disconnected peer stays suspect, so that its last messages, or those of other ranks, can explain
// the disconnect: at least kSuspectGrace; at most kMaxSuspectGrace if the listener thread has not polled since.
inline constexpr Milliseconds kSuspectGrace{300};
inline constexpr Milliseconds kMaxSuspectGrace{850};
inline constexpr Milliseconds kDrainGrace{50};  // to drain received messages once the listener thread has polled

/// The failure detector of point-to-point operations. A disconnected peer is suspect; a message received from it
/// restarts the grace time. The peer is dead once kSuspectGrace has passed without a message and the listener thread
/// has polled, or after kMaxSuspectGrace in any case. Peers that said goodbye are not observed. Guarded by the mutex of
/// the ControlChannel.
class FailureDetector {
 public:
  /// The state of a peer as seen by this rank; `poll_epoch` counts the polls of the listener thread.
  struct Observation {
    bool disconnected;
    std::uint64_t messages_received;
    std::uint64_t poll_epoch;
  };
  enum class PeerState : std::uint8_t { alive, newly_suspect, suspect, dead };

  explicit FailureDetector(int size) : suspicions_(static_cast<std::size_t>(size)) {}

  /// Returns the state of a peer. On `newly_suspect` the caller must poke the listener thread.
  PeerState update(int rank, Observation observation, Clock::time_point now);

 private:
  struct Suspicion {
    Clock::time_point since;
    Observation observation;  ///< at `since`
    std::optional<Clock::time_point> polled_at;
  };
  std::vector<std::optional<Suspicion>> suspicions_;
};

}  // namespace hookline::p2p
