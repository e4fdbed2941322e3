// Backoff of a waiting thread before it blocks.
#include "backend/embedded/backoff.hpp"

#include <gtest/gtest.h>

namespace hookline::embedded {
namespace {

TEST(Backoff, KeepsTheCoreForAWhileAndAgainAfterEachMove) {
  for (const Patience patience : {Patience::spins, Patience::yields}) {
    Backoff backoff(patience);
    EXPECT_TRUE(backoff.pause());
    while (backoff.pause()) {
    }
    EXPECT_FALSE(backoff.pause());
    backoff.reset();
    EXPECT_TRUE(backoff.pause());
  }
}

TEST(Backoff, SleepsAtOnceWhereItIsToldTo) {
  Backoff backoff(Patience::sleeps);
  EXPECT_FALSE(backoff.pause());
  backoff.reset();
  EXPECT_FALSE(backoff.pause());
}

}  // namespace
}  // namespace hookline::embedded
