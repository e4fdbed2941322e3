// Errors of sends and receives over a transport when a peer dies, leaves or stops receiving.
#include <cstring>
#include <optional>
#include <thread>

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

  // Closes the connections of a rank without a goodbye, as if its process was killed.
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
  for (int round = 0; round < 20; ++round) (void)groups_[1]->send(Tensor::full({10}, round), 0);
  const Tensor t = Tensor::zeros({10});
  (void)groups_[1]->send(t, 0, {.tag = 1});
  groups_[0]->recv(t, 1, {.tag = 1})->wait();  // sent last: all earlier messages have arrived, too
  kill(1);
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
  EXPECT_THROW(receive->wait(Milliseconds(800)), Timeout) << "longer than the failure detector needs";
}

// Rank 0 leaves a group. The test receives on behalf of the other ranks, at its own pace, as behind slow links.
class EngineLeaving : public ::testing::Test {
 protected:
  explicit EngineLeaving(Milliseconds timeout = std::chrono::seconds(60))
      : group_(make_group(make_engine_backend(engines_[0]), timeout)) {}

  void send(int count, int to) {
    for (int i = 0; i < count; ++i) group_->send(Tensor::full({10}, i), to)->wait();
  }

  // Receives the next control message and returns its last element; nullopt for the goodbye.
  std::optional<float> next_mail(std::size_t rank) {
    std::vector<std::byte> room(kMailBytes);
    const auto message = engines_[rank]->receive_any({kMailChannel, 0}, room.data(), room.size());
    message->wait(true);
    constexpr std::size_t kLast = 32 + 9 * sizeof(float);
    std::uint32_t kind = 0;
    std::memcpy(&kind, room.data(), sizeof kind);
    if (kind != 1) return std::nullopt;
    float last = 0;
    std::memcpy(&last, room.data() + kLast, sizeof last);
    return last;
  }

  void expect_all(int count, std::size_t rank, Milliseconds pace) {
    for (int i = 0; i < count; ++i) {
      std::this_thread::sleep_for(pace);
      EXPECT_EQ(next_mail(rank), static_cast<float>(i));
    }
    EXPECT_EQ(next_mail(rank), std::nullopt);
  }

  // Leaves, then closes all transports: later receives throw PeerLost.
  std::jthread leave() {
    return std::jthread([this] {
      group_->shutdown();
      for (const auto& engine : engines_) engine->close();
    });
  }

  const std::vector<std::shared_ptr<Engine>> engines_ = testing::make_memory_engines(3);
  const std::shared_ptr<ProcessGroup> group_;
};

TEST_F(EngineLeaving, WhatWasSentGoesOutAsLongAsItMoves) {
  send(30, 1);
  const std::jthread other([&] { EXPECT_EQ(next_mail(2), std::nullopt); });
  const std::jthread leaving = leave();
  expect_all(30, 1, Milliseconds(80));
}

TEST_F(EngineLeaving, WhoTakesNothingKeepsNothingFromTheOthers) {
  send(100, 1);
  send(30, 2);
  const std::jthread leaving = leave();
  expect_all(30, 2, Milliseconds(80));
}

TEST_F(EngineLeaving, WhoTakesNothingIsNotWaitedForWithEveryMessage) {
  send(3000, 1);
  send(3000, 2);
  const Clock::time_point start = Clock::now();
  group_->shutdown();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

class EngineLeavingSoon : public EngineLeaving {
 protected:
  EngineLeavingSoon() : EngineLeaving(Milliseconds(300)) {}
};

TEST_F(EngineLeavingSoon, ASendHasNoMoreThanItsOwnTime) {
  send(1000, 1);
  int taken = 0;
  std::thread other([&] {
    EXPECT_THROW(
        for (;; ++taken) {
          std::this_thread::sleep_for(Milliseconds(20));
          next_mail(1);
        },
        PeerLost);
  });
  group_->shutdown();
  engines_[1]->close();
  other.join();
  EXPECT_LT(taken, 500);
}

}  // namespace
}  // namespace hookline
