// Ranks whose connection is lost: when is it certain that no words of theirs are on their way any more?
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <hookline/core/deadline.hpp>

namespace hookline::engine {

// How long a lost connection waits for the words of who closed it, which came before it was closed, and for others':
// at least, and, while the thread that listens has not had the time to look, at most.
inline constexpr Milliseconds kExplain{300};
inline constexpr Milliseconds kExplainBusy{850};
inline constexpr Milliseconds kTake{50};  // for a letter that has come, once that thread runs

/// For those who wait for mail. A rank is well; or doubted, from when its connection is first seen to be lost until
/// mail of it is taken, which begins the doubt anew; or dead, when nothing was taken for so long though the thread that
/// listens has looked. Whoever looks around changes that, under the mutex of the mail; who left is not asked for.
class Doubts {
 public:
  /// What is known of a rank: whether its connection is lost, how much mail of it has been taken, and how often the
  /// thread that listens has looked.
  struct Seen {
    bool lost;
    std::uint64_t heard;
    std::uint64_t looks;
  };
  enum class Verdict : std::uint8_t { well, doubted_from_now, doubted, dead };

  explicit Doubts(int size) : doubts_(static_cast<std::size_t>(size)) {}

  /// `doubted_from_now` asks for a look of the thread that listens.
  Verdict judge(int rank, Seen seen, Clock::time_point now);

 private:
  struct Doubt {
    Clock::time_point since;
    Seen seen;  ///< then
    std::optional<Clock::time_point> looked_at;
  };
  std::vector<std::optional<Doubt>> doubts_;
};

}  // namespace hookline::engine
