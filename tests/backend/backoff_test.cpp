// Backoff of a waiting thread before it blocks.
#include "backend/local/backoff.hpp"

#include <gtest/gtest.h>

namespace hookline::local {
namespace {

TEST(Backoff, SpinsThenBlocksAndRestartsAfterReset) {
  for (const BackoffPhase phase : {BackoffPhase::spin, BackoffPhase::yield}) {
    Backoff backoff(phase);
    EXPECT_TRUE(backoff.pause());
    while (backoff.pause()) {
    }
    EXPECT_FALSE(backoff.pause());
    backoff.reset();
    EXPECT_TRUE(backoff.pause());
  }
}

TEST(Backoff, BlocksAtOnce) {
  Backoff backoff(BackoffPhase::block);
  EXPECT_FALSE(backoff.pause());
  backoff.reset();
  EXPECT_FALSE(backoff.pause());
}

}  // namespace
}  // namespace hookline::local
