// The state machine from a disconnect to a death.
#include "backend/engine/doubts.hpp"

namespace hookline::engine {

Doubts::Verdict Doubts::judge(int rank, Seen seen, Clock::time_point now) {
  std::optional<Doubt>& doubt = doubts_[static_cast<std::size_t>(rank)];
  if (!seen.lost) {
    doubt.reset();
    return Verdict::well;
  }
  if (!doubt || doubt->seen.heard != seen.heard) {
    doubt = Doubt{.since = now, .seen = seen, .looked_at = {}};
    return Verdict::doubted_from_now;
  }
  if (!doubt->looked_at && doubt->seen.looks != seen.looks) doubt->looked_at = now;
  const bool looked = doubt->looked_at && now >= *doubt->looked_at + kTake;
  const bool dead = now >= doubt->since + (looked ? kExplain : kExplainBusy);
  return dead ? Verdict::dead : Verdict::doubted;
}

}  // namespace hookline::engine
