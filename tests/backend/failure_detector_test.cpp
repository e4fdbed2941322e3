// FailureDetector: when a lost connection counts as a death.
#include "backend/p2p/failure_detector.hpp"

#include <gtest/gtest.h>

namespace hookline::p2p {
namespace {

using Verdict = FailureDetector::PeerState;

class FailureDetectorTest : public ::testing::Test {
 protected:
  Verdict judge(int milliseconds, FailureDetector::Observation seen) {
    return doubts_.update(1, seen, start_ + Milliseconds(milliseconds));
  }

  const Clock::time_point start_ = Clock::now();
  FailureDetector doubts_{2};
};

TEST_F(FailureDetectorTest, DisconnectedPeerIsDeadAfterDrainGrace) {
  EXPECT_EQ(judge(0, {.disconnected = false, .messages_received = 0, .poll_epoch = 1}), Verdict::alive);
  EXPECT_EQ(judge(100, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), Verdict::newly_suspect);
  EXPECT_EQ(judge(200, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), Verdict::suspect);
  EXPECT_EQ(judge(399, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), Verdict::suspect);
  EXPECT_EQ(judge(400, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), Verdict::dead);
}

TEST_F(FailureDetectorTest, MessagesInFlightAreDrainedFirst) {
  EXPECT_EQ(judge(0, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), Verdict::newly_suspect);
  EXPECT_EQ(judge(299, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), Verdict::suspect);
  EXPECT_EQ(judge(400, {.disconnected = true, .messages_received = 1, .poll_epoch = 3}), Verdict::newly_suspect);
  EXPECT_EQ(judge(500, {.disconnected = true, .messages_received = 1, .poll_epoch = 4}), Verdict::suspect);
  EXPECT_EQ(judge(700, {.disconnected = true, .messages_received = 1, .poll_epoch = 4}), Verdict::dead);
}

TEST_F(FailureDetectorTest, DelayedPollerGetsBoundedGrace) {
  EXPECT_EQ(judge(0, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), Verdict::newly_suspect);
  EXPECT_EQ(judge(800, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), Verdict::suspect);
  EXPECT_EQ(judge(820, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), Verdict::suspect)
      << "time to drain messages";
  EXPECT_EQ(judge(849, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), Verdict::suspect);
  EXPECT_EQ(judge(850, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), Verdict::dead);
}

TEST_F(FailureDetectorTest, ReconnectClearsSuspicion) {
  EXPECT_EQ(judge(0, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), Verdict::newly_suspect);
  EXPECT_EQ(judge(100, {.disconnected = false, .messages_received = 0, .poll_epoch = 2}), Verdict::alive);
  EXPECT_EQ(judge(900, {.disconnected = true, .messages_received = 0, .poll_epoch = 3}), Verdict::newly_suspect);
}

}  // namespace
}  // namespace hookline::p2p
