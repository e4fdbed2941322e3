// NtStoreTuner selects the stores that were faster in the majority of the last trials.
#include "backend/embedded/staging_pace.hpp"

#include <gtest/gtest.h>

namespace hookline::embedded {
namespace {

using kernel::Stores;
using namespace std::chrono_literals;

/// Runs all rounds of one period; a timed round takes `cached` or `streamed`, depending on its stores.
void trial(StagingPace& pace, std::uint64_t number, Clock::duration cached, Clock::duration streamed) {
  int tried_cached = 0;
  int tried_streaming = 0;
  for (std::uint64_t round = number * StagingPace::kPeriod; round < (number + 1) * StagingPace::kPeriod; ++round) {
    const Stores stores = pace.stores(round);
    if (!pace.is_timed(round)) continue;
    ++(stores == Stores::cached ? tried_cached : tried_streaming);
    pace.note(round, stores == Stores::cached ? cached : streamed);
  }
  EXPECT_EQ(tried_cached, 1);
  EXPECT_EQ(tried_streaming, 1);
}

Stores chosen(const StagingPace& pace) { return pace.stores(StagingPace::kPeriod / 2); }

TEST(StagingPace, TakesTheFasterWay) {
  StagingPace pace;
  EXPECT_EQ(chosen(pace), Stores::cached);
  trial(pace, 0, 50us, 10us);
  EXPECT_EQ(chosen(pace), Stores::streaming);
}

TEST(StagingPace, OneDisturbedTrialChangesNothingTwoDo) {
  StagingPace pace;
  trial(pace, 0, 10us, 20us);
  trial(pace, 1, 500us, 20us);
  EXPECT_EQ(chosen(pace), Stores::cached);
  trial(pace, 2, 500us, 20us);
  EXPECT_EQ(chosen(pace), Stores::streaming);
}

TEST(StagingPace, HalfATrialIsNone) {
  StagingPace pace;
  for (std::uint64_t round = 2; round < 2 * StagingPace::kPeriod; ++round) {
    if (pace.is_timed(round) && pace.stores(round) == Stores::streaming) pace.note(round, 1us);
  }
  EXPECT_EQ(chosen(pace), Stores::cached);
}

}  // namespace
}  // namespace hookline::embedded
