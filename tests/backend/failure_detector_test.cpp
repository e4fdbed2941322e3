// Tests FailureDetector: when a disconnected peer is dead.
#include "backend/p2p/failure_detector.hpp"

#include <gtest/gtest.h>

namespace hookline::p2p {
namespace {

using PeerState = FailureDetector::PeerState;

class FailureDetectorTest : public ::testing::Test {
 protected:
  PeerState update(int milliseconds, FailureDetector::Observation observation) {
    return detector_.update(1, observation, start_ + Milliseconds(milliseconds));
  }

  const Clock::time_point start_ = Clock::now();
  FailureDetector detector_{2};
};

TEST_F(FailureDetectorTest, DisconnectedPeerIsDeadAfterDrainGrace) {
  EXPECT_EQ(update(0, {.disconnected = false, .messages_received = 0, .poll_epoch = 1}), PeerState::alive);
  EXPECT_EQ(update(100, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), PeerState::newly_suspect);
  EXPECT_EQ(update(200, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), PeerState::suspect);
  EXPECT_EQ(update(399, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), PeerState::suspect);
  EXPECT_EQ(update(400, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), PeerState::dead);
}

TEST_F(FailureDetectorTest, MessagesInFlightAreDrainedFirst) {
  EXPECT_EQ(update(0, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), PeerState::newly_suspect);
  EXPECT_EQ(update(299, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), PeerState::suspect);
  EXPECT_EQ(update(400, {.disconnected = true, .messages_received = 1, .poll_epoch = 3}), PeerState::newly_suspect);
  EXPECT_EQ(update(500, {.disconnected = true, .messages_received = 1, .poll_epoch = 4}), PeerState::suspect);
  EXPECT_EQ(update(700, {.disconnected = true, .messages_received = 1, .poll_epoch = 4}), PeerState::dead);
}

TEST_F(FailureDetectorTest, DelayedPollerGetsBoundedGrace) {
  EXPECT_EQ(update(0, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), PeerState::newly_suspect);
  EXPECT_EQ(update(800, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), PeerState::suspect);
  EXPECT_EQ(update(820, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), PeerState::suspect)
      << "time to drain messages";
  EXPECT_EQ(update(849, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), PeerState::suspect);
  EXPECT_EQ(update(850, {.disconnected = true, .messages_received = 0, .poll_epoch = 2}), PeerState::dead);
}

TEST_F(FailureDetectorTest, ReconnectClearsSuspicion) {
  EXPECT_EQ(update(0, {.disconnected = true, .messages_received = 0, .poll_epoch = 1}), PeerState::newly_suspect);
  EXPECT_EQ(update(100, {.disconnected = false, .messages_received = 0, .poll_epoch = 2}), PeerState::alive);
  EXPECT_EQ(update(900, {.disconnected = true, .messages_received = 0, .poll_epoch = 3}), PeerState::newly_suspect);
}

}  // namespace
}  // namespace hookline::p2p
