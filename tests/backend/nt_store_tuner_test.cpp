// NtStoreTuner selects the stores that were faster in the majority of the last trials.
#include "backend/local/nt_store_tuner.hpp"

#include <gtest/gtest.h>

namespace hookline::local {
namespace {

using kernel::StoreMode;
using namespace std::chrono_literals;

/// Runs all rounds of one period; a timed round takes `cached` or `streamed`, depending on its stores.
void trial(NtStoreTuner& pace, std::uint64_t number, Clock::duration cached, Clock::duration streamed) {
  int tried_cached = 0;
  int tried_streaming = 0;
  for (std::uint64_t round = number * NtStoreTuner::kPeriod; round < (number + 1) * NtStoreTuner::kPeriod; ++round) {
    const StoreMode stores = pace.select_stores(round);
    if (!pace.is_timed(round)) continue;
    ++(stores == StoreMode::cached ? tried_cached : tried_streaming);
    pace.record(round, stores == StoreMode::cached ? cached : streamed);
  }
  EXPECT_EQ(tried_cached, 1);
  EXPECT_EQ(tried_streaming, 1);
}

StoreMode chosen(const NtStoreTuner& pace) { return pace.select_stores(NtStoreTuner::kPeriod / 2); }

TEST(NtStoreTuner, SelectsTheFasterStores) {
  NtStoreTuner pace;
  EXPECT_EQ(chosen(pace), StoreMode::cached);
  trial(pace, 0, 50us, 10us);
  EXPECT_EQ(chosen(pace), StoreMode::streaming);
}

TEST(NtStoreTuner, OneOutlierIsIgnored) {
  NtStoreTuner pace;
  trial(pace, 0, 10us, 20us);
  trial(pace, 1, 500us, 20us);
  EXPECT_EQ(chosen(pace), StoreMode::cached);
  trial(pace, 2, 500us, 20us);
  EXPECT_EQ(chosen(pace), StoreMode::streaming);
}

TEST(NtStoreTuner, IncompleteTrialIsIgnored) {
  NtStoreTuner pace;
  for (std::uint64_t round = 2; round < 2 * NtStoreTuner::kPeriod; ++round) {
    if (pace.is_timed(round) && pace.select_stores(round) == StoreMode::streaming) pace.record(round, 1us);
  }
  EXPECT_EQ(chosen(pace), StoreMode::cached);
}

}  // namespace
}  // namespace hookline::local
