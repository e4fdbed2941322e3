// Tests P2PChecker: both ranks must call matching operations; other ranks do not take part.
#include "group/p2p_checker.hpp"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/collective_checks.hpp>
#include <hookline/store/memory_store.hpp>

#include "group/rank_threads.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;
using testing::Groups;
using ::testing::HasSubstr;
using testing::make_thread_groups;
using testing::on_ranks;
using testing::sum_of_ones;

struct P2PRanks : testing::CheckedRanks {
  using CheckedRanks::CheckedRanks;
  void expect_no_keys() const { EXPECT_EQ(store->num_keys(), 0) << ::testing::PrintToString(store->list_keys()); }
};

Tensor filled(double value, DType dtype = DType::f32) { return Tensor::full({4}, value, dtype); }

float first(const Tensor& t) { return t.flatten().slice(0, 0, 1).item<float>(); }

TEST(P2PChecker, MatchesByTagAndOrderWithoutOtherRanks) {
  P2PRanks ranks(3);  // rank 2 is idle
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    if (rank == 2) return;
    std::vector<WorkPtr> works;
    std::vector<Tensor> tensors;
    for (int i = 0; i < 6; ++i) tensors.push_back(filled(rank == 0 ? 10 + i : 0));
    for (const int i : {0, 1, 2, 3, 4, 5}) {
      // Three messages with tag 0 in order, then three with other tags that are received in reverse order.
      const int tag = i < 3 ? 0 : rank == 0 ? i : 8 - i;
      const Tensor& t = tensors[static_cast<std::size_t>(i)];
      works.push_back(rank == 0 ? g.send(t, 1, {.tag = tag}) : g.recv(t, 0, {.tag = tag}));
    }
    for (const auto& work : works) work->wait(20s);
    if (rank == 0) return;
    for (const int i : {0, 1, 2, 3, 4, 5}) {
      EXPECT_EQ(first(tensors[static_cast<std::size_t>(i)]), i < 3 ? 10 + i : 18 - i) << i;
      EXPECT_EQ(works[static_cast<std::size_t>(i)]->source_rank(), 0);
    }
  });
  EXPECT_EQ(errors, (std::vector<std::string>(3)));
  ranks.expect_no_keys();
}

TEST(P2PChecker, BothRanksMayPostRecvFirst) {
  P2PRanks ranks(2);
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    Tensor in = filled(0);
    const auto received = g.recv(in, 1 - rank);
    const auto sent = g.send(filled(rank + 5), 1 - rank);
    received->wait(20s);
    sent->wait(20s);
    EXPECT_EQ(first(in), 6 - rank);
    EXPECT_EQ(sent->source_rank(), -1);
    EXPECT_EQ(sum_of_ones(g), 2);
  });
  EXPECT_EQ(errors, (std::vector<std::string>(2)));
  ranks.expect_no_keys();
}

TEST(P2PChecker, DifferencesRaiseMismatchOnBothRanks) {
  const std::vector<std::pair<Tensor, std::string>> others = {
      {Tensor::full({4}, 7, DType::i32), "recv of int32[4] with tag 3"},
      {Tensor::full({2, 2}, 7), "recv of float32[2, 2] with tag 3"},
      {Tensor::full({5}, 7), "recv of float32[5] with tag 3"}};
  P2PRanks ranks(2);
  for (const bool receiver_first : {false, true}) {
    for (const auto& [other, text] : others) {
      const auto errors = on_ranks(ranks.groups, [&, &received = other](ProcessGroup& g, int rank) {
        // The second rank starts after the first has stored its signature.
        const auto deadline = deadline_after(20s);
        while ((rank == 1) != receiver_first && ranks.store->num_keys() == 0 && Clock::now() < deadline)
          std::this_thread::yield();
        (rank == 0 ? g.send(filled(1), 1, {.tag = 3}) : g.recv(received, 0, {.tag = 3}))->wait(20s);
      });
      for (const auto& e : errors) {
        EXPECT_THAT(e, HasSubstr("send from rank 0 to rank 1 does not match its recv: rank 0 called send of float32[4] "
                                 "with tag 3, rank 1 called " +
                                 text));
      }
      EXPECT_EQ(other.flatten().slice(0, 0, 1).item<int>(), 7);
      ranks.expect_no_keys();
    }
  }
  EXPECT_EQ(on_ranks(ranks.groups, [](ProcessGroup& g, int) { EXPECT_EQ(sum_of_ones(g), 2); }),
            (std::vector<std::string>(2)));
}

TEST(P2PChecker, TimeoutListsUnmatchedTags) {
  P2PRanks ranks(2, 300ms);
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    Tensor t = filled(rank);
    (rank == 0 ? g.send(t, 1, {.tag = 5}) : g.recv(t, 0, {.tag = 6, .timeout = 1s}))->wait();
  });
  EXPECT_THAT(errors[0],
              HasSubstr("send of float32[4] with tag 5 to rank 1 on rank 0 of 2: rank 1 has not called a matching recv "
                        "in time; unmatched calls: rank 1 recv of float32[4] with tag 6"));
  EXPECT_NE(errors[1], "");
  ranks.groups.clear();
  EXPECT_EQ(ranks.store->list_keys(), std::vector<std::string>{"checked/aborted"});
}

TEST(P2PChecker, RecvFromAnySource) {
  P2PRanks ranks(3);
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    if (rank != 0) {
      for (int i = 0; i < 3; ++i) g.send(filled(10 * rank + i), 0)->wait(20s);
      return;
    }
    // Receives from any rank, then from rank 1, then from any rank; each sender's messages arrive in order.
    std::vector<Tensor> tensors;
    std::vector<WorkPtr> works;
    for (int i = 0; i < 6; ++i) {
      tensors.push_back(filled(0));
      works.push_back(i == 1 ? g.recv(tensors.back(), 1) : g.recv_anysource(tensors.back()));
    }
    std::array<int, 3> seen{};
    for (std::size_t i = 0; i < works.size(); ++i) {
      works[i]->wait(20s);
      EXPECT_EQ(works[i]->op_type(), i == 1 ? OpType::recv : OpType::recv_anysource);
    }
    for (std::size_t i = 0; i < works.size(); ++i) {
      const int source = works[i]->source_rank();
      ASSERT_TRUE(source == 1 || source == 2);
      EXPECT_EQ(first(tensors[i]), static_cast<float>(10 * source + seen[static_cast<std::size_t>(source)]++));
    }
    EXPECT_EQ(works[1]->source_rank(), 1);
  });
  EXPECT_EQ(errors, (std::vector<std::string>(3)));
  ranks.expect_no_keys();
}

/// A store that reports one key as missing for the first checks.
class DelayedStore final : public Store {
 public:
  DelayedStore(std::shared_ptr<Store> store, std::string delayed_key)
      : store_(std::move(store)), delayed_key_(std::move(delayed_key)) {}
  std::string describe() const override { return "DelayedStore"; }
  void set(const std::string& k, const std::string& v) override { store_->set(k, v); }
  std::string get(const std::string& k) override { return store_->get(k); }
  std::int64_t add(const std::string& k, std::int64_t n) override { return store_->add(k, n); }
  void wait(const std::vector<std::string>& k, Milliseconds t) override { store_->wait(k, t); }
  bool check(const std::vector<std::string>& k) override {
    return (k.at(0) != delayed_key_ || --checks_left_ < 0) && store_->check(k);
  }
  std::string compare_set(const std::string& k, const std::string& e, const std::string& d) override {
    return store_->compare_set(k, e, d);
  }
  bool delete_key(const std::string& k) override { return store_->delete_key(k); }
  std::int64_t num_keys() override { return store_->num_keys(); }

 private:
  const std::shared_ptr<Store> store_;
  const std::string delayed_key_;
  int checks_left_ = 20;
};

// Two messages with the same tag must start in order, even if the peer's answer to the second is seen first.
TEST(P2PChecker, StartsInOrderWhenFirstAnswerIsDelayed) {
  for (const std::size_t late : {0u, 1u}) {
    const auto store = std::make_shared<MemoryStore>();
    const auto slow = std::make_shared<DelayedStore>(store, "checked/p2p/0-1/0/1/answer");
    const Groups plain = make_thread_groups(2);
    const Groups groups = {with_collective_checks(plain[0], late == 0 ? slow : std::static_pointer_cast<Store>(store)),
                           with_collective_checks(plain[1], late == 1 ? slow : std::static_pointer_cast<Store>(store))};
    std::array<Tensor, 4> tensors = {filled(1), filled(2), filled(0), filled(0)};
    std::vector<WorkPtr> works;
    const auto start = [&](std::size_t rank) {
      for (const std::size_t i : {0u, 1u}) {
        works.push_back(rank == 0 ? groups[0]->send(tensors[i], 1) : groups[1]->recv(tensors[2 + i], 0));
      }
    };
    start(late);
    const auto deadline = deadline_after(20s);
    while (store->num_keys() == 0 && Clock::now() < deadline) std::this_thread::yield();
    start(1 - late);
    for (const auto& work : works) work->wait(20s);
    EXPECT_EQ(first(tensors[2]), 1);
    EXPECT_EQ(first(tensors[3]), 2);
  }
}

// As in the group itself, a message matches the receive that was posted first.
TEST(P2PChecker, AnySourceRecvMatchesBeforeLaterRecv) {
  const auto store = std::make_shared<MemoryStore>();
  const Groups plain = make_thread_groups(2);
  const Groups groups = {
      with_collective_checks(plain[0], store),
      with_collective_checks(plain[1], std::make_shared<DelayedStore>(store, "checked/p2p/0-1/0/1"))};
  const Tensor any = filled(0);
  const Tensor later = filled(0);
  const std::vector<WorkPtr> works = {groups[1]->recv_anysource(any), groups[1]->recv(later, 0),
                                      groups[0]->send(filled(1), 1), groups[0]->send(filled(2), 1)};
  for (const auto& work : works) work->wait(20s);
  EXPECT_EQ(first(any), 1);
  EXPECT_EQ(first(later), 2);
  EXPECT_EQ(works[0]->source_rank(), 0);
}

TEST(P2PChecker, AnySourceRecvReportsMismatch) {
  P2PRanks ranks(2);
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    Tensor t = filled(1, rank == 0 ? DType::f64 : DType::f32);
    (rank == 0 ? g.send(t, 1) : g.recv_anysource(t))->wait(20s);
  });
  for (const auto& e : errors) EXPECT_THAT(e, HasSubstr("rank 0 called send of float64[4]"));
  ranks.expect_no_keys();
}

TEST(P2PChecker, FailWhenGroupIsDestroyed) {
  P2PRanks ranks(2);
  Tensor t = filled(1);
  const auto sent = ranks.groups[0]->send(t, 1);
  const auto received = ranks.groups[0]->recv_anysource(t, {.tag = 4});
  ranks.groups[0].reset();
  EXPECT_THROW(sent->wait(20s), Aborted);
  EXPECT_THROW(received->wait(20s), Aborted);
  ranks.expect_no_keys();
  EXPECT_THROW((void)ranks.groups[1]->send(t, 1), InvalidArgument);
  EXPECT_THROW((void)ranks.groups[1]->send(t, 2), InvalidArgument);
}

}  // namespace
}  // namespace hookline
