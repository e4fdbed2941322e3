// Sends and receives on an engine where a peer dies, leaves, or takes little: who is told what.
#include <gmock/gmock.h>

#include <hookline/backend/engine.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/process_group.hpp>

#include "harness/memory_engine.hpp"

namespace hookline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class EngineMail : public ::testing::Test {
 protected:
  explicit EngineMail(int size = 3) : engines_(testing::make_memory_engines(size)) {
    for (const auto& engine : engines_) {
      groups_.push_back(make_group(make_engine_backend(engine), std::chrono::seconds(20)));
    }
  }

  // The connections of a rank end, and nothing is heard of it: as where its process was killed.
  void kill(std::size_t rank) { engines_[rank]->close(); }

  const std::vector<std::shared_ptr<Engine>> engines_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
};

TEST_F(EngineMail, AReceiveFromARankThatDiesFails) {
  const WorkPtr receive = groups_[0]->recv(Tensor::zeros({10}), 1);
  kill(1);
  EXPECT_THAT([&] { receive->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1 died")));
}

TEST_F(EngineMail, AReceiveFromAnybodyFailsWithTheFirstThatDies) {
  const WorkPtr receive = groups_[0]->recv_anysource(Tensor::zeros({10}));
  kill(2);
  EXPECT_THAT([&] { receive->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 2 died")));
}

TEST_F(EngineMail, ALargeSendThatNobodyWillTakeFails) {
  const WorkPtr send = groups_[0]->send(Tensor::zeros({100'000}), 1);
  kill(1);
  EXPECT_THAT([&] { send->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1 died")));
}

TEST_F(EngineMail, WhatARankHadSentBeforeItDiedIsReceivedInItsOrder) {
  for (int round = 0; round < 20; ++round) groups_[1]->send(Tensor::full({10}, round), 0);
  kill(1);
  const Tensor t = Tensor::zeros({10});
  for (int round = 0; round < 20; ++round) {
    groups_[0]->recv(t, 1)->wait();
    EXPECT_EQ(t.data<float>()[9], static_cast<float>(round));
  }
  EXPECT_THAT([&] { groups_[0]->recv(t, 1)->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1 died")));
}

TEST_F(EngineMail, WhoLeavesInGoodOrderIsNotTakenForDead) {
  const WorkPtr receive = groups_[0]->recv(Tensor::zeros({10}), 1);
  groups_[1]->shutdown();
  EXPECT_THAT([&] { receive->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1 left the group")));
}

TEST_F(EngineMail, AReceiveFromAnybodyWaitsForTheOthersWhereOneHasLeft) {
  const WorkPtr receive = groups_[0]->recv_anysource(Tensor::zeros({10}));
  groups_[2]->shutdown();
  EXPECT_THROW(receive->wait(Milliseconds(800)), Timeout) << "long enough to take somebody for dead";
}

}  // namespace
}  // namespace hookline
