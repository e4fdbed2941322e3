// FailureDetector: when a lost connection counts as a death.
#include "backend/engine/doubts.hpp"

#include <gtest/gtest.h>

namespace hookline::engine {
namespace {

using Verdict = Doubts::Verdict;

class DoubtsOfARank : public ::testing::Test {
 protected:
  Verdict judge(int milliseconds, Doubts::Seen seen) {
    return doubts_.judge(1, seen, start_ + Milliseconds(milliseconds));
  }

  const Clock::time_point start_ = Clock::now();
  Doubts doubts_{2};
};

TEST_F(DoubtsOfARank, ALostConnectionIsADeathWhenWordsHadTheirTime) {
  EXPECT_EQ(judge(0, {.lost = false, .heard = 0, .looks = 1}), Verdict::well);
  EXPECT_EQ(judge(100, {.lost = true, .heard = 0, .looks = 1}), Verdict::doubted_from_now);
  EXPECT_EQ(judge(200, {.lost = true, .heard = 0, .looks = 2}), Verdict::doubted);
  EXPECT_EQ(judge(399, {.lost = true, .heard = 0, .looks = 2}), Verdict::doubted);
  EXPECT_EQ(judge(400, {.lost = true, .heard = 0, .looks = 2}), Verdict::dead);
}

TEST_F(DoubtsOfARank, WhatItHadSentIsTakenFirst) {
  EXPECT_EQ(judge(0, {.lost = true, .heard = 0, .looks = 1}), Verdict::doubted_from_now);
  EXPECT_EQ(judge(299, {.lost = true, .heard = 0, .looks = 2}), Verdict::doubted);
  EXPECT_EQ(judge(400, {.lost = true, .heard = 1, .looks = 3}), Verdict::doubted_from_now);
  EXPECT_EQ(judge(500, {.lost = true, .heard = 1, .looks = 4}), Verdict::doubted);
  EXPECT_EQ(judge(700, {.lost = true, .heard = 1, .looks = 4}), Verdict::dead);
}

TEST_F(DoubtsOfARank, AThreadThatIsLateIsGivenTimeToLookButNotForEver) {
  EXPECT_EQ(judge(0, {.lost = true, .heard = 0, .looks = 1}), Verdict::doubted_from_now);
  EXPECT_EQ(judge(800, {.lost = true, .heard = 0, .looks = 1}), Verdict::doubted);
  EXPECT_EQ(judge(820, {.lost = true, .heard = 0, .looks = 2}), Verdict::doubted) << "time to drain messages";
  EXPECT_EQ(judge(849, {.lost = true, .heard = 0, .looks = 2}), Verdict::doubted);
  EXPECT_EQ(judge(850, {.lost = true, .heard = 0, .looks = 2}), Verdict::dead);
}

TEST_F(DoubtsOfARank, AConnectionThatIsThereEndsADoubt) {
  EXPECT_EQ(judge(0, {.lost = true, .heard = 0, .looks = 1}), Verdict::doubted_from_now);
  EXPECT_EQ(judge(100, {.lost = false, .heard = 0, .looks = 2}), Verdict::well);
  EXPECT_EQ(judge(900, {.lost = true, .heard = 0, .looks = 3}), Verdict::doubted_from_now);
}

}  // namespace
}  // namespace hookline::engine
