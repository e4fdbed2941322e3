// Sends and receives of a checked group: both ends have to have called the same, and nobody else is asked.
#include "group/message_checks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/checked.hpp>
#include <hookline/store/memory_store.hpp>

#include "group/rank_threads.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;
using testing::Groups;
using ::testing::HasSubstr;
using testing::on_ranks;
using testing::sum_of_ones;
using testing::threads;

struct Ranks {
  std::shared_ptr<MemoryStore> store = std::make_shared<MemoryStore>();
  Groups groups;
  explicit Ranks(int size, Milliseconds timeout = 20s) {
    for (const auto& g : threads(size, timeout)) groups.push_back(checked(g, store));
  }
  void expect_no_keys() const { EXPECT_EQ(store->num_keys(), 0) << ::testing::PrintToString(store->list_keys()); }
};

Tensor filled(double value, DType dtype = DType::f32) { return Tensor::full({4}, value, dtype); }

float first(const Tensor& t) { return t.flatten().slice(0, 0, 1).item<float>(); }

TEST(MessageChecks, MatchedByTagAndOrderWithoutTheOthers) {
  Ranks ranks(3);  // rank 2 does nothing at all
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    if (rank == 2) return;
    std::vector<WorkPtr> works;
    std::vector<Tensor> tensors;
    for (int i = 0; i < 6; ++i) tensors.push_back(filled(rank == 0 ? 10 + i : 0));
    for (const int i : {0, 1, 2, 3, 4, 5}) {
      // Three of tag 0 in order, and three of other tags which the receiver asks for the other way round.
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

TEST(MessageChecks, BothEndsMayReceiveFirst) {
  Ranks ranks(2);
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

TEST(MessageChecks, DifferencesAreAMismatchOnBothEnds) {
  const std::vector<std::pair<Tensor, std::string>> others = {
      {Tensor::full({4}, 7, DType::i32), "recv of int32[4] with tag 3"},
      {Tensor::full({2, 2}, 7), "recv of float32[2, 2] with tag 3"},
      {Tensor::full({5}, 7), "recv of float32[5] with tag 3"}};
  Ranks ranks(2);
  for (const bool receiver_first : {false, true}) {
    for (const auto& [other, text] : others) {
      const auto errors = on_ranks(ranks.groups, [&](ProcessGroup& g, int rank) {
        // Whoever comes second comes when the other has left its call.
        const auto deadline = deadline_after(20s);
        while ((rank == 1) != receiver_first && ranks.store->num_keys() == 0 && Clock::now() < deadline)
          std::this_thread::yield();
        try {
          (rank == 0 ? g.send(filled(1), 1, {.tag = 3}) : g.recv(other, 0, {.tag = 3}))->wait(20s);
        } catch (const Mismatch&) {
          throw;
        }
      });
      for (const auto& e : errors) {
        EXPECT_THAT(e, HasSubstr("a message from rank 0 to rank 1: rank 0 called send of float32[4] with tag 3, rank 1 "
                                 "called " +
                                 text));
      }
      EXPECT_EQ(other.flatten().slice(0, 0, 1).item<int>(), 7);
      ranks.expect_no_keys();
    }
  }
  EXPECT_EQ(on_ranks(ranks.groups, [](ProcessGroup& g, int) { EXPECT_EQ(sum_of_ones(g), 2); }),
            (std::vector<std::string>(2)));
}

TEST(MessageChecks, AnotherTagIsNamedAtTheTimeout) {
  Ranks ranks(2, 300ms);
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    Tensor t = filled(rank);
    (rank == 0 ? g.send(t, 1, {.tag = 5}) : g.recv(t, 0, {.tag = 6, .timeout = 1s}))->wait();
  });
  EXPECT_THAT(
      errors[0],
      HasSubstr("rank 0 called send of float32[4] with tag 5 to rank 1, and rank 1 did not call the recv for it "
                "in time; called and not met were: rank 1 recv of float32[4] with tag 6"));
  EXPECT_NE(errors[1], "");
  ranks.groups.clear();
  ranks.expect_no_keys();
}

TEST(MessageChecks, FromAnyRank) {
  Ranks ranks(3);
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    if (rank != 0) {
      for (int i = 0; i < 3; ++i) g.send(filled(10 * rank + i), 0)->wait(20s);
      return;
    }
    // The first is from any rank, the next from rank 1, the rest from any: each sender's messages come in order.
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

TEST(MessageChecks, FromAnyRankThatSendsSomethingElse) {
  Ranks ranks(2);
  const auto errors = on_ranks(ranks.groups, [](ProcessGroup& g, int rank) {
    Tensor t = filled(1, rank == 0 ? DType::f64 : DType::f32);
    (rank == 0 ? g.send(t, 1) : g.recv_anysource(t))->wait(20s);
  });
  for (const auto& e : errors) EXPECT_THAT(e, HasSubstr("rank 0 called send of float64[4]"));
  ranks.expect_no_keys();
}

TEST(MessageChecks, EndWithTheGroup) {
  Ranks ranks(2);
  Tensor t = filled(1);
  const auto sent = ranks.groups[0]->send(t, 1);
  const auto received = ranks.groups[0]->recv_anysource(t, {.tag = 4});
  ranks.groups[0].reset();
  EXPECT_THROW(sent->wait(20s), Aborted);
  EXPECT_THROW(received->wait(20s), Aborted);
  ranks.expect_no_keys();
  EXPECT_THROW(ranks.groups[1]->send(t, 1), InvalidArgument);
  EXPECT_THROW(ranks.groups[1]->send(t, 2), InvalidArgument);
}

}  // namespace
}  // namespace hookline
