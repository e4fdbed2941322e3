// NtStoreTuner selects the stores that were faster in the majority of the last trials.
#include "backend/local/nt_store_tuner.hpp"

#include <gtest/gtest.h>

namespace hookline::local {
namespace {

using kernel::StoreMode;
using namespace std::chrono_literals;

/// Runs all rounds of one period; a timed round takes `cached` or `streamed`, depending on its stores.
void trial(NtStoreTuner& tuner, std::uint64_t number, Clock::duration cached, Clock::duration streamed) {
  int timed_cached = 0;
  int timed_streaming = 0;
  for (std::uint64_t round = number * NtStoreTuner::kPeriod; round < (number + 1) * NtStoreTuner::kPeriod; ++round) {
    const StoreMode stores = tuner.select_stores(round);
    if (!tuner.is_timed(round)) continue;
    ++(stores == StoreMode::cached ? timed_cached : timed_streaming);
    tuner.record(round, stores == StoreMode::cached ? cached : streamed);
  }
  EXPECT_EQ(timed_cached, 1);
  EXPECT_EQ(timed_streaming, 1);
}

StoreMode selected_stores(const NtStoreTuner& tuner) { return tuner.select_stores(NtStoreTuner::kPeriod / 2); }

TEST(NtStoreTuner, SelectsTheFasterStores) {
  NtStoreTuner tuner;
  EXPECT_EQ(selected_stores(tuner), StoreMode::cached);
  trial(tuner, 0, 50us, 10us);
  EXPECT_EQ(selected_stores(tuner), StoreMode::streaming);
}

TEST(NtStoreTuner, OneOutlierIsIgnored) {
  NtStoreTuner tuner;
  trial(tuner, 0, 10us, 20us);
  trial(tuner, 1, 500us, 20us);
  EXPECT_EQ(selected_stores(tuner), StoreMode::cached);
  trial(tuner, 2, 500us, 20us);
  EXPECT_EQ(selected_stores(tuner), StoreMode::streaming);
}

TEST(NtStoreTuner, IncompleteTrialIsIgnored) {
  NtStoreTuner tuner;
  for (std::uint64_t round = 2; round < 2 * NtStoreTuner::kPeriod; ++round) {
    if (tuner.is_timed(round) && tuner.select_stores(round) == StoreMode::streaming) tuner.record(round, 1us);
  }
  EXPECT_EQ(selected_stores(tuner), StoreMode::cached);
}

}  // namespace
}  // namespace hookline::local
