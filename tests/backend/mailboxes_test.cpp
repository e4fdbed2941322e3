// Mailboxes of two ranks, stepped by the test: matching while the sender writes.
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

#include "backend/local/local_context.hpp"
#include "backend/threads/threads_memory.hpp"

namespace hookline::local {
namespace {

class MailboxesTest : public ::testing::Test {
 protected:
  explicit MailboxesTest(int size = 2) : group_memory_(std::make_shared<threads::GroupMemory>(size, false)) {
    for (int r = 0; r < size; ++r) {
      auto memory = std::make_unique<threads::ThreadsMemory>(group_memory_, r);
      contexts_.push_back(std::make_shared<LocalContext>(
          std::move(memory), LocalContextOptions{.name = "test", .progress_thread = false}));
      contexts_.back()->open();
    }
  }
  ~MailboxesTest() override {
    for (auto& context : contexts_) context->close();
  }

  std::shared_ptr<LocalOp> send(float value, int tag = 0) {
    Operation what{.type = OpType::send, .inputs = {Tensor::full({1}, value)}, .outputs = {}, .root = 1, .tag = tag};
    return contexts_[0]->start(std::move(what), 0, Milliseconds{10'000});
  }
  std::shared_ptr<LocalOp> receive(const Tensor& output, int tag = 0) {
    return contexts_[1]->start({.type = OpType::recv, .inputs = {}, .outputs = {output}, .root = 0, .tag = tag}, 0,
                               Milliseconds{10'000});
  }

  const std::shared_ptr<threads::GroupMemory> group_memory_;
  std::vector<std::shared_ptr<LocalContext>> contexts_;
};

// The receiver scans the first mailbox before the sender fills it, and the second one after.
TEST_F(MailboxesTest, MessagesAreMatchedInSendOrder) {
  ASSERT_TRUE(send(1)->done());
  ASSERT_TRUE(send(2)->done());
  Counter& first = receiver_mailboxes(group_memory_->block(0), 1)[0].message_count;
  first.store(0);
  const Tensor a = Tensor::zeros({1});
  const Tensor b = Tensor::zeros({1});
  const auto one = receive(a);
  const auto two = receive(b);
  contexts_[1]->drive();
  EXPECT_FALSE(one->done());
  EXPECT_FALSE(two->done());
  first.store(1);
  contexts_[1]->drive();
  ASSERT_TRUE(one->done());
  ASSERT_TRUE(two->done());
  EXPECT_EQ(a.data<float>()[0], 1);
  EXPECT_EQ(b.data<float>()[0], 2);
}

// check_peers() detects that the peer has left while the peer's last message is still unread.
TEST_F(MailboxesTest, MessagesOfDepartedRankAreDelivered) {
  ASSERT_TRUE(send(1)->done());
  Counter& message = receiver_mailboxes(group_memory_->block(0), 1)[0].message_count;
  message.store(0);
  const Tensor a = Tensor::zeros({1});
  const auto one = receive(a);
  message.store(1);
  contexts_[0]->close();
  contexts_[1]->check_peers();
  ASSERT_TRUE(one->done());
  EXPECT_EQ(one->exception(), nullptr);
  EXPECT_EQ(a.data<float>()[0], 1);
}

// A spilled message has already freed its mailbox, which now holds another message.
TEST_F(MailboxesTest, SpilledMessageFreesItsMailboxWhenRejected) {
  constexpr int kMailboxes = static_cast<int>(kMailboxesPerPeer);
  for (int tag = 1; tag <= kMailboxes; ++tag) ASSERT_TRUE(send(1, tag)->done());
  const auto last = send(1, kMailboxes + 1);
  const auto receive_now = [&](std::int64_t count, int tag) {
    const auto one = receive(Tensor::zeros({count}), tag);
    for (int i = 0; i < 4; ++i) {
      contexts_[1]->drive();
      contexts_[0]->drive();
    }
    return one;
  };
  ASSERT_TRUE(receive_now(1, kMailboxes + 1)->done()) << "the first message is spilled";
  ASSERT_TRUE(last->done());
  const auto refused = receive_now(2, 1);
  ASSERT_TRUE(refused->done());
  EXPECT_THROW(refused->wait(std::nullopt), Mismatch);
  for (int tag = 2; tag <= kMailboxes; ++tag) ASSERT_TRUE(receive_now(1, tag)->done());
  for (int i = 0; i < kMailboxes; ++i) EXPECT_TRUE(send(1)->done()) << "mailbox " << i;
}

TEST_F(MailboxesTest, SpillingContinuesWithoutPause) {
  const Tensor two_chunks = Tensor::zeros({kMailboxMemoryBytes / kMailboxesPerPeer / 2 / sizeof(float)});
  for (std::size_t i = 0; i < kMailboxesPerPeer; ++i) {
    Operation what{.type = OpType::send, .inputs = {two_chunks}, .outputs = {}, .root = 1, .tag = 1};
    ASSERT_TRUE(contexts_[0]->start(std::move(what), 0, Milliseconds{10'000})->done());
  }
  const auto one = receive(Tensor::zeros({1}), 2);  // spills the first chunk
  EXPECT_TRUE(contexts_[1]->drive()) << "the second chunk";
  EXPECT_FALSE(contexts_[1]->drive());
}

class MailboxesOfThreeRanks : public MailboxesTest {
 protected:
  MailboxesOfThreeRanks() : MailboxesTest(3) {}

  std::shared_ptr<LocalOp> receive_any(const Tensor& output) {
    return contexts_[1]->start({.type = OpType::recv_anysource, .inputs = {}, .outputs = {output}}, 0,
                               Milliseconds{10'000});
  }
};

TEST_F(MailboxesOfThreeRanks, AnysourceWaitsForRemainingRanks) {
  const Tensor a = Tensor::zeros({1});
  const auto one = receive_any(a);
  contexts_[2]->close();
  contexts_[1]->check_peers();
  ASSERT_FALSE(one->done());
  send(1);
  contexts_[1]->drive();
  ASSERT_TRUE(one->done());
  EXPECT_EQ(one->exception(), nullptr);
  EXPECT_EQ(a.data<float>()[0], 1);
}

TEST_F(MailboxesOfThreeRanks, AnysourceFailsWhenAllPeersLeft) {
  const auto one = receive_any(Tensor::zeros({1}));
  contexts_[2]->close();
  contexts_[0]->close();
  contexts_[1]->check_peers();
  ASSERT_TRUE(one->done());
  EXPECT_THROW(one->wait(std::nullopt), PeerLost);
}

}  // namespace
}  // namespace hookline::local
