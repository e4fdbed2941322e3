// The state machine from a disconnect to a death.
#include "backend/p2p/failure_detector.hpp"

namespace hookline::p2p {

FailureDetector::PeerState FailureDetector::update(int rank, Observation observation, Clock::time_point now) {
  std::optional<Suspicion>& suspicion = suspicions_[static_cast<std::size_t>(rank)];
  if (!observation.disconnected) {
    suspicion.reset();
    return PeerState::alive;
  }
  if (!suspicion || suspicion->observation.messages_received != observation.messages_received) {
    suspicion = Suspicion{.since = now, .observation = observation, .polled_at = {}};
    return PeerState::newly_suspect;
  }
  if (!suspicion->polled_at && suspicion->observation.poll_epoch != observation.poll_epoch) suspicion->polled_at = now;
  const bool drained = suspicion->polled_at && now >= *suspicion->polled_at + kDrainGrace;
  const bool dead = now >= suspicion->since + (drained ? kSuspectGrace : kMaxSuspectGrace);
  return dead ? PeerState::dead : PeerState::suspect;
}

}  // namespace hookline::p2p
