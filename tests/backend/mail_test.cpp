// Mailboxes of two ranks, stepped by the test: matching while the sender writes.
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

#include "backend/embedded/engine.hpp"
#include "backend/threads/threads_memory.hpp"

namespace hookline::embedded {
namespace {

class Mails : public ::testing::Test {
 protected:
  explicit Mails(int size = 2) : world_(std::make_shared<threads::World>(size, false)) {
    for (int r = 0; r < size; ++r) {
      auto memory = std::make_unique<threads::ThreadsMemory>(world_, r);
      engines_.push_back(
          std::make_shared<Engine>(std::move(memory), EngineOptions{.name = "test", .progress_thread = false}));
      engines_.back()->open();
    }
  }
  ~Mails() override {
    for (auto& engine : engines_) engine->close();
  }

  std::shared_ptr<Pending> send(float value, int tag = 0) {
    Collective what{.type = OpType::send, .inputs = {Tensor::full({1}, value)}, .outputs = {}, .root = 1, .tag = tag};
    return engines_[0]->start(std::move(what), 0, Milliseconds{10'000});
  }
  std::shared_ptr<Pending> receive(const Tensor& into, int tag = 0) {
    return engines_[1]->start({.type = OpType::recv, .inputs = {}, .outputs = {into}, .root = 0, .tag = tag}, 0,
                              Milliseconds{10'000});
  }

  const std::shared_ptr<threads::World> world_;
  std::vector<std::shared_ptr<Engine>> engines_;
};

// The receiver scans the first mailbox before the sender fills it, and the second one after.
TEST_F(Mails, AreTakenInTheirOrderEvenWhereALaterOneIsSeenFirst) {
  ASSERT_TRUE(send(1)->over());
  ASSERT_TRUE(send(2)->over());
  Counter& first = mailboxes(world_->block(0), 1)[0].message;
  first.store(0);
  const Tensor a = Tensor::zeros({1});
  const Tensor b = Tensor::zeros({1});
  const auto one = receive(a);
  const auto two = receive(b);
  engines_[1]->drive();
  EXPECT_FALSE(one->over());
  EXPECT_FALSE(two->over());
  first.store(1);
  engines_[1]->drive();
  ASSERT_TRUE(one->over());
  ASSERT_TRUE(two->over());
  EXPECT_EQ(a.data<float>()[0], 1);
  EXPECT_EQ(b.data<float>()[0], 2);
}

// check_peers() sees that the peer left before it has read the peer's last message.
TEST_F(Mails, OfARankThatLeftAreTakenBeforeItIsMissed) {
  ASSERT_TRUE(send(1)->over());
  Counter& message = mailboxes(world_->block(0), 1)[0].message;
  message.store(0);
  const Tensor a = Tensor::zeros({1});
  const auto one = receive(a);
  message.store(1);
  engines_[0]->close();
  engines_[1]->look_around();
  ASSERT_TRUE(one->over());
  EXPECT_EQ(one->exception(), nullptr);
  EXPECT_EQ(a.data<float>()[0], 1);
}

// A spilled message has freed its mailbox, which holds another message by now.
TEST_F(Mails, ThatWerePutAsideAndAreRefusedLeaveTheirMailboxesToOthers) {
  constexpr int kBoxes = static_cast<int>(kMailboxes);
  for (int tag = 1; tag <= kBoxes; ++tag) ASSERT_TRUE(send(1, tag)->over());
  const auto last = send(1, kBoxes + 1);
  const auto receive_now = [&](std::int64_t count, int tag) {
    const auto one = receive(Tensor::zeros({count}), tag);
    for (int i = 0; i < 4; ++i) {
      engines_[1]->drive();
      engines_[0]->drive();
    }
    return one;
  };
  ASSERT_TRUE(receive_now(1, kBoxes + 1)->over()) << "the first message is spilled";
  ASSERT_TRUE(last->over());
  const auto refused = receive_now(2, 1);
  ASSERT_TRUE(refused->over());
  EXPECT_THROW(refused->wait(std::nullopt), Mismatch);
  for (int tag = 2; tag <= kBoxes; ++tag) ASSERT_TRUE(receive_now(1, tag)->over());
  for (int i = 0; i < kBoxes; ++i) EXPECT_TRUE(send(1)->over()) << "mailbox " << i;
}

TEST_F(Mails, ThatArePutAsideInPiecesAreTakenWithoutAPause) {
  const Tensor two_chunks = Tensor::zeros({kMailBytes / kMailboxes / 2 / sizeof(float)});
  for (std::size_t i = 0; i < kMailboxes; ++i) {
    Collective what{.type = OpType::send, .inputs = {two_chunks}, .outputs = {}, .root = 1, .tag = 1};
    ASSERT_TRUE(engines_[0]->start(std::move(what), 0, Milliseconds{10'000})->over());
  }
  const auto one = receive(Tensor::zeros({1}), 2);  // spills the first chunk
  EXPECT_TRUE(engines_[1]->drive()) << "the second chunk";
  EXPECT_FALSE(engines_[1]->drive());
}

class MailsOfThree : public Mails {
 protected:
  MailsOfThree() : Mails(3) {}

  std::shared_ptr<Pending> receive_from_anybody(const Tensor& into) {
    return engines_[1]->start({.type = OpType::recv_anysource, .inputs = {}, .outputs = {into}}, 0,
                              Milliseconds{10'000});
  }
};

TEST_F(MailsOfThree, FromAnybodyAreAwaitedFromThoseWhoHaveNotLeft) {
  const Tensor a = Tensor::zeros({1});
  const auto one = receive_from_anybody(a);
  engines_[2]->close();
  engines_[1]->look_around();
  ASSERT_FALSE(one->over());
  send(1);
  engines_[1]->drive();
  ASSERT_TRUE(one->over());
  EXPECT_EQ(one->exception(), nullptr);
  EXPECT_EQ(a.data<float>()[0], 1);
}

TEST_F(MailsOfThree, FromAnybodyAreMissedWhenAllHaveLeft) {
  const auto one = receive_from_anybody(Tensor::zeros({1}));
  engines_[2]->close();
  engines_[0]->close();
  engines_[1]->look_around();
  ASSERT_TRUE(one->over());
  EXPECT_THROW(one->wait(std::nullopt), PeerLost);
}

}  // namespace
}  // namespace hookline::embedded
