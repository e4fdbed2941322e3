// Tests collective checks: matches, mismatches, timeouts, aborts, store traffic and keys left in the store.
#include <hookline/group/collective_checks.hpp>

#include <array>
#include <functional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>
#include <hookline/store/memory_store.hpp>
#include <hookline/store/prefix_store.hpp>
#include <hookline/store/tcp_store.hpp>

#include "group/rank_threads.hpp"
#include "harness/counting_proxy.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;
using testing::CheckedRanks;
using testing::CountingProxy;
using testing::Groups;
using ::testing::HasSubstr;
using testing::make_thread_groups;
using testing::on_ranks;
using testing::sum_of_ones;

TEST(CollectiveChecks, RunsMatchingCallsAndLeavesNoKeys) {
  CheckedRanks pair(3);
  const auto errors = on_ranks(pair.groups, [](ProcessGroup& g, int rank) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(sum_of_ones(g), 3);
    Tensor t = Tensor::full({2}, rank);
    EXPECT_EQ(g.broadcast(t, {.root = 2})->get_future().wait(20s).size(), 1u);
    EXPECT_EQ(t.slice(0, 0, 1).item<int>(), 2);
    if (rank == 0) g.send(t, 1)->wait(20s);
    if (rank == 1) g.recv(t, 0)->wait(20s);
    const auto sub = g.new_group({0, 2});
    if (sub) {
      EXPECT_EQ(sum_of_ones(*sub), 2);
    }
    EXPECT_EQ(g.sequence_number(), rank == 2 ? 21u : 22u);
  });
  EXPECT_EQ(errors, (std::vector<std::string>(3)));
  EXPECT_EQ(pair.store->num_keys(), 0) << ::testing::PrintToString(pair.store->list_keys());
}

TEST(CollectiveChecks, DifferencesRaiseMismatchOnEveryRank) {
  const std::vector<std::function<void(ProcessGroup&, int)>> calls = {
      [](ProcessGroup& g, int rank) {
        Tensor t = Tensor::full({4}, 1);
        (rank == 0 ? g.allreduce(t) : g.broadcast(t, {.root = 1}))->wait(20s);
      },
      [](ProcessGroup& g, int rank) {
        Tensor t = rank == 0 ? Tensor::full({4}, 1) : Tensor::full({2, 2}, 1);
        g.allreduce(t)->wait(20s);
      },
      [](ProcessGroup& g, int rank) {
        Tensor t = Tensor::full({4}, 1, rank == 0 ? DType::f32 : DType::i32);
        g.allreduce(t)->wait(20s);
      },
      [](ProcessGroup& g, int rank) {
        Tensor t = Tensor::full({4}, 1);
        g.broadcast(t, {.root = rank})->wait(20s);
      },
      [](ProcessGroup& g, int rank) {
        Tensor t = Tensor::full({4}, 1);
        g.allreduce(t, {.op = rank == 0 ? ReduceOp::sum : ReduceOp::max})->wait(20s);
      },
  };
  CheckedRanks pair;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const auto errors = on_ranks(pair.groups, [&](ProcessGroup& g, int rank) {
      try {
        calls[i](g, rank);
        FAIL() << i;
      } catch (const Mismatch&) {
        throw;
      }
    });
    for (const auto& e : errors) {
      EXPECT_THAT(e,
                  HasSubstr("the ranks called different operations (number " + std::to_string(i + 1) + " of lane 0):"));
      EXPECT_THAT(e, HasSubstr("rank 0: "));
      EXPECT_THAT(e, HasSubstr("rank 1: "));
    }
    EXPECT_EQ(pair.store->num_keys(), 0);
  }
  EXPECT_EQ(on_ranks(pair.groups, [](ProcessGroup& g, int) { EXPECT_EQ(sum_of_ones(g), 2); }),
            (std::vector<std::string>(2)));
}

TEST(CollectiveChecks, TimeoutNamesMissingRank) {
  for (const int size : {3, 33}) {
    CheckedRanks pair(size, 300ms);
    const auto errors = on_ranks(pair.groups, [&](ProcessGroup& g, int rank) {
      if (rank == 1) return;
      Tensor t = Tensor::full({4}, 1);
      g.allreduce(t)->wait();
    });
    EXPECT_EQ(errors[1], "");
    const std::string who = "rank 1 did not call any operation in time";
    int named = 0;
    for (const auto& e : errors) named += e.find(who) != std::string::npos ? 1 : 0;
    EXPECT_GE(named, 1) << errors[0];
  }
}

/// Records the CallContext in which operations reach the inner group.
class ContextRecorder final : public GroupDecorator {
 public:
  using GroupDecorator::GroupDecorator;
  WorkPtr run(Operation c) override {
    context = current_context();
    return inner()->run(std::move(c));
  }
  CallContext context;
};

TEST(CollectiveChecks, OperationsKeepCallContext) {
  const auto store = std::make_shared<MemoryStore>();
  Groups groups;
  std::vector<std::shared_ptr<ContextRecorder>> noting;
  for (const auto& g : make_thread_groups(2)) {
    noting.push_back(std::make_shared<ContextRecorder>(g));
    groups.push_back(with_collective_checks(noting.back(), store));
  }
  const auto errors = on_ranks(groups, [&](ProcessGroup& g, int rank) {
    const auto sent = std::make_shared<std::atomic<std::uint64_t>>(0);
    const ContextScope scope({.lane = 3, .op_tag = 7, .bytes_sent = sent});
    const CallContext& inside = noting[static_cast<std::size_t>(rank)]->context;
    EXPECT_EQ(sum_of_ones(g), 2);
    EXPECT_EQ(inside.lane, 3);
    EXPECT_EQ(inside.op_tag, 7u);
    EXPECT_EQ(inside.bytes_sent, sent);
    noting[static_cast<std::size_t>(rank)]->context = {};
    const Tensor message = Tensor::full({1}, rank);
    (rank == 0 ? g.send(message, 1) : g.recv(message, 0))->wait();
    EXPECT_EQ(inside.op_tag, 7u);
    EXPECT_EQ(inside.bytes_sent, sent);
  });
  EXPECT_EQ(errors, (std::vector<std::string>(2)));
}

TEST(CollectiveChecks, DestructorDoesNotWaitForPeers) {
  CheckedRanks pair;
  Tensor t = Tensor::full({4}, 1);
  const auto work = pair.groups[0]->allreduce(t);
  const auto begin = Clock::now();
  EXPECT_THROW(work->wait(50ms), Timeout);
  pair.groups[0].reset();
  EXPECT_LT(Clock::now() - begin, 10s);
  EXPECT_THROW(work->wait(1s), Error);
  EXPECT_THROW(with_collective_checks(make_thread_groups(1)[0], nullptr), InvalidArgument);
  EXPECT_THROW(with_collective_checks(nullptr, pair.store), InvalidArgument);
}

/// Groups that compare through a TCPStore, with a proxy per rank that counts round trips.
struct CountedGroups {
  std::shared_ptr<TCPStore> server = std::make_shared<TCPStore>(TCPStoreOptions{.is_master = true});
  std::vector<std::unique_ptr<CountingProxy>> proxies;
  Groups groups;
  explicit CountedGroups(int size) {
    for (const auto& g : make_thread_groups(size)) {
      proxies.push_back(std::make_unique<CountingProxy>(server->port()));
      auto store = std::make_shared<TCPStore>(TCPStoreOptions{.port = proxies.back()->port()});
      groups.push_back(with_collective_checks(g, std::make_shared<PrefixStore>("p", std::move(store))));
    }
  }
};

TEST(CollectiveChecks, AtMostFourStoreRoundTrips) {
  for (const int size : {2, 4, 33}) {
    CountedGroups pair(size);
    const auto errors = on_ranks(pair.groups, [&](ProcessGroup& g, int rank) {
      const CountingProxy& way = *pair.proxies[static_cast<std::size_t>(rank)];
      sum_of_ones(g);  // connects
      for (int i = 0; i < 10; ++i) {
        const int before = way.round_trips();
        EXPECT_EQ(sum_of_ones(g), static_cast<float>(size));
        const int taken = way.round_trips() - before;
        EXPECT_GE(taken, 2);
        EXPECT_LE(taken, 4) << "rank " << rank << " of " << size;
      }
    });
    EXPECT_EQ(errors, std::vector<std::string>(static_cast<std::size_t>(size)));
    EXPECT_EQ(pair.server->num_keys(), 0) << ::testing::PrintToString(pair.server->list_keys());
  }
}

std::string error_of(const WorkPtr& work) {
  try {
    work->wait();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(CollectiveChecks, AbortEndsWaitsOnAllRanks) {
  const CheckedRanks in_memory;
  const CountedGroups at_server(2);
  for (const Groups* const groups : {&in_memory.groups, &at_server.groups}) {
    const auto begin = Clock::now();
    const Tensor t = Tensor::full({4}, 1);
    const WorkPtr waits = (*groups)[0]->allreduce(t);
    const WorkPtr receives = (*groups)[0]->recv(t, 1);
    const ContextScope scope({.lane = 1});
    const WorkPtr own = (*groups)[1]->allreduce(t);
    (*groups)[1]->abort("because");
    const std::string aborted = "rank 1 aborted the checked group: because";
    EXPECT_EQ(error_of(waits), aborted);
    EXPECT_EQ(error_of(receives), aborted);
    EXPECT_EQ(error_of((*groups)[0]->allreduce(t)), aborted);
    EXPECT_EQ(error_of((*groups)[0]->send(t, 1)), aborted);
    EXPECT_EQ(error_of(own), aborted);
    EXPECT_EQ(error_of((*groups)[1]->allreduce(t)), aborted);
    EXPECT_LT(Clock::now() - begin, 10s) << "well before the timeout of 20 s";
  }
}

TEST(CollectiveChecks, StaysFailedAfterTimeout) {
  CheckedRanks late(2, 300ms);
  const Tensor t = Tensor::full({4}, 1);
  const std::string first = error_of(late.groups[0]->allreduce(t, {.timeout = 100ms}));
  EXPECT_THAT(first, HasSubstr("rank 1 did not call any operation in time"));
  EXPECT_EQ(error_of(late.groups[0]->broadcast(t)), first);

  const Groups inside = make_thread_groups(2);
  const auto store = std::make_shared<MemoryStore>();
  const Groups around = {with_collective_checks(inside[0], store), with_collective_checks(inside[1], store)};
  inside[1]->abort("because");
  const WorkPtr other = around[1]->allreduce(t);
  const std::string first_error = error_of(around[0]->allreduce(t));
  EXPECT_THAT(first_error, HasSubstr("because"));
  EXPECT_EQ(error_of(around[0]->broadcast(t)), first_error) << "without any peer";
}

// Threads that share a store connection would block each other while one waits for a rank.
TEST(CollectiveChecks, LanesAreIndependent) {
  const CheckedRanks in_memory;
  const CountedGroups at_server(2);
  for (const Groups* const groups : {&in_memory.groups, &at_server.groups}) {
    const auto errors = on_ranks(*groups, [](ProcessGroup& g, int rank) {
      std::array<Tensor, 4> tensors;
      std::vector<WorkPtr> works;
      for (int i = 0; i < 4; ++i) {  // a different order on each rank
        const int lane = rank == 0 ? i : 3 - i;
        const ContextScope scope({.lane = lane});
        works.push_back(g.allreduce(tensors[static_cast<std::size_t>(i)] = Tensor::full({4}, lane)));
      }
      for (const auto& work : works) work->wait(10s);
      for (int i = 0; i < 4; ++i) {
        EXPECT_EQ(tensors[static_cast<std::size_t>(i)].data<float>()[3],
                  static_cast<float>(2 * (rank == 0 ? i : 3 - i)));
      }
    });
    EXPECT_EQ(errors, (std::vector<std::string>(2)));
  }
}

TEST(CollectiveChecks, MembersOfASubgroupUseTheSameKeys) {
  CheckedRanks pair(3);
  const auto errors = on_ranks(pair.groups, [](ProcessGroup& g, int rank) {
    const auto first = g.new_group({0, 1});  // rank 2 is not a member
    const auto second = g.new_group({0, 2});
    EXPECT_EQ(second != nullptr, rank != 1);
    if (second) {
      EXPECT_EQ(sum_of_ones(*second), 2);
    }
    const auto third = g.split(rank == 1 ? 1 : 0, 0);
    ASSERT_NE(third, nullptr);
    EXPECT_EQ(sum_of_ones(*third), rank == 1 ? 1 : 2);
  });
  EXPECT_EQ(errors, (std::vector<std::string>(3)));
  EXPECT_EQ(pair.store->num_keys(), 0) << ::testing::PrintToString(pair.store->list_keys());
}

// A continuation on the group's own thread may release the last reference to the group.
TEST(CollectiveChecks, MayBeDestroyedOnItsOwnThread) {
  for (const bool message : {false, true}) {
    CheckedRanks pair;
    Tensor a = Tensor::full({4}, 1);
    Tensor b = Tensor::full({4}, 1);
    const auto start = [&](std::size_t r) {
      if (!message) return pair.groups[r]->allreduce(r == 0 ? a : b);
      return r == 0 ? pair.groups[0]->send(a, 1) : pair.groups[1]->recv(b, 0);
    };
    const WorkPtr first = start(0);
    const WorkPtr never = pair.groups[0]->allreduce(a);
    Promise<void> ended;
    first->get_future().on_done([group = std::move(pair.groups[0]), &ended]() mutable {
      group.reset();
      ended.set_value();
    });
    start(1)->wait(20s);
    ended.get_future().wait(20s);
    EXPECT_THROW(never->wait(20s), Error);
  }
}

}  // namespace
}  // namespace hookline
