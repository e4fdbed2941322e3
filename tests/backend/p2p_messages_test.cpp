// Errors of sends and receives over a transport when a peer dies, leaves or stops receiving.
#include <cstring>
#include <optional>
#include <thread>

#include <gmock/gmock.h>

#include <hookline/backend/transport.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/process_group.hpp>

#include "harness/memory_transport.hpp"

namespace hookline {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

class P2PMessages : public ::testing::Test {
 protected:
  explicit P2PMessages(int size = 3) : transports_(testing::make_memory_transports(size)) {
    for (const auto& transport : transports_) {
      groups_.push_back(make_group(make_transport_backend(transport), std::chrono::seconds(20)));
    }
  }

  // Closes the connections of a rank without a goodbye, as if its process was killed.
  void kill(std::size_t rank) { transports_[rank]->close(); }

  const std::vector<std::shared_ptr<Transport>> transports_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
};

TEST_F(P2PMessages, RecvFromDyingRankFails) {
  const WorkPtr receive = groups_[0]->recv(Tensor::zeros({10}), 1);
  kill(1);
  EXPECT_THAT([&] { receive->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1 died")));
}

TEST_F(P2PMessages, RecvAnysourceFailsOnFirstDeath) {
  const WorkPtr receive = groups_[0]->recv_anysource(Tensor::zeros({10}));
  kill(2);
  EXPECT_THAT([&] { receive->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 2 died")));
}

TEST_F(P2PMessages, LargeSendToDyingRankFails) {
  const WorkPtr send = groups_[0]->send(Tensor::zeros({100'000}), 1);
  kill(1);
  EXPECT_THAT([&] { send->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1 died")));
}

TEST_F(P2PMessages, MessagesSentBeforeDeathArriveInOrder) {
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

TEST_F(P2PMessages, CleanDepartureIsNotADeath) {
  const WorkPtr receive = groups_[0]->recv(Tensor::zeros({10}), 1);
  groups_[1]->shutdown();
  EXPECT_THAT([&] { receive->wait(); }, ThrowsMessage<PeerLost>(HasSubstr("rank 1 left the group")));
}

TEST_F(P2PMessages, RecvAnysourceWaitsForRemainingRanks) {
  const WorkPtr receive = groups_[0]->recv_anysource(Tensor::zeros({10}));
  groups_[2]->shutdown();
  EXPECT_THROW(receive->wait(Milliseconds(800)), Timeout) << "longer than the failure detector needs";
}

// Rank 0 leaves a group. The test receives on behalf of the other ranks and delays them, as a slow link would.
class P2PShutdown : public ::testing::Test {
 protected:
  explicit P2PShutdown(Milliseconds timeout = std::chrono::seconds(60))
      : group_(make_group(make_transport_backend(transports_[0]), timeout)) {}

  void send(int count, int to) {
    for (int i = 0; i < count; ++i) group_->send(Tensor::full({10}, i), to)->wait();
  }

  // Receives the next control message and returns its last element; nullopt for the goodbye.
  std::optional<float> next_message(std::size_t rank) {
    std::vector<std::byte> buffer(kMaxControlBytes);
    const auto message = transports_[rank]->receive_any({kControlChannel, 0}, buffer.data(), buffer.size());
    message->wait(WaitPolicy::spin);
    constexpr std::size_t kLastElement = 32 + 9 * sizeof(float);
    std::uint32_t kind = 0;
    std::memcpy(&kind, buffer.data(), sizeof kind);
    if (kind != 1) return std::nullopt;
    float last = 0;
    std::memcpy(&last, buffer.data() + kLastElement, sizeof last);
    return last;
  }

  void expect_all(int count, std::size_t rank, Milliseconds pace) {
    for (int i = 0; i < count; ++i) {
      std::this_thread::sleep_for(pace);
      EXPECT_EQ(next_message(rank), static_cast<float>(i));
    }
    EXPECT_EQ(next_message(rank), std::nullopt);
  }

  // Leaves, then closes all transports: later receives throw PeerLost.
  std::jthread leave() {
    return std::jthread([this] {
      group_->shutdown();
      for (const auto& transport : transports_) transport->close();
    });
  }

  const std::vector<std::shared_ptr<Transport>> transports_ = testing::make_memory_transports(3);
  const std::shared_ptr<ProcessGroup> group_;
};

TEST_F(P2PShutdown, ShutdownFlushesWhileDataMoves) {
  send(30, 1);
  const std::jthread other([&] { EXPECT_EQ(next_message(2), std::nullopt); });
  const std::jthread leaving = leave();
  expect_all(30, 1, Milliseconds(80));
}

TEST_F(P2PShutdown, StalledPeerDoesNotBlockOthers) {
  send(100, 1);
  send(30, 2);
  const std::jthread leaving = leave();
  expect_all(30, 2, Milliseconds(80));
}

TEST_F(P2PShutdown, StalledPeerIsWaitedForOnlyOnce) {
  send(3000, 1);
  send(3000, 2);
  const Clock::time_point start = Clock::now();
  group_->shutdown();
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(20));
}

class P2PShutdownWithShortTimeout : public P2PShutdown {
 protected:
  P2PShutdownWithShortTimeout() : P2PShutdown(Milliseconds(300)) {}
};

TEST_F(P2PShutdownWithShortTimeout, SendKeepsItsTimeout) {
  send(1000, 1);
  int messages_sent = 0;
  std::thread other([&] {
    EXPECT_THROW(
        for (;; ++messages_sent) {
          std::this_thread::sleep_for(Milliseconds(20));
          next_message(1);
        },
        PeerLost);
  });
  group_->shutdown();
  transports_[1]->close();
  other.join();
  EXPECT_LT(messages_sent, 500);
}

}  // namespace
}  // namespace hookline
