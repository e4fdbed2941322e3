// Contract of groups that detect failures: mismatched calls, and ranks that fail, leave or are missing.
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include <hookline/core/error.hpp>

#include "contract/group_contract.hpp"

namespace hookline::testing {
namespace {

class GroupFailures : public GroupContract {};

template <class E>
auto throws_naming(const std::vector<int>& ranks) {
  return ::testing::Throws<E>(::testing::Property(&Error::ranks, ranks));
}

TEST_P(GroupFailures, MismatchedMessageSizeFailsOnlyTheReceiver) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    for (int round = 0; round < 10; ++round) {
      const Tensor t = Tensor::full({100 + group.rank()}, group.rank());
      if (group.rank() == 0) {
        group.send(t, 1)->wait();
        group.send(t, 1)->wait();
      } else {
        EXPECT_THAT([&] { group.recv(t, 0)->wait(); }, throws_naming<Mismatch>({0}));
        EXPECT_EQ(t.data<float>()[0], 1.0f);
        group.recv(t.slice(0, 0, 100), 0)->wait();
        EXPECT_EQ(t.data<float>()[0], 0.0f);
      }
    }
    group.barrier()->wait();
  });
}

TEST_P(GroupFailures, MismatchedSplitsFailOnAllRanks) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const Tensor input = Tensor::full({4}, 1);
    const Tensor output = Tensor::full({group.rank() == 0 ? 3 : 4}, -1);
    const std::vector<std::int64_t> gives = group.rank() == 0 ? std::vector<std::int64_t>{1, 3} : std::vector{2L, 2L};
    const std::vector<std::int64_t> takes = group.rank() == 0 ? std::vector<std::int64_t>{1, 2} : std::vector{2L, 2L};
    try {
      group.alltoall_base(output, input, takes, gives)->wait();
      ADD_FAILURE() << "rank 0 sends 3 rows, rank 1 expects 2";
    } catch (const Mismatch& error) {
      EXPECT_NE(std::string(error.what()).find("rank 0 sends 12 bytes to rank 1, which expects 8 bytes"),
                std::string::npos)
          << error.what();
      EXPECT_EQ(error.ranks(), (std::vector{0, 1}));
    }
    EXPECT_EQ(output.data<float>()[0], -1.0f);
    group.barrier()->wait();
  });
}

TEST_P(GroupFailures, MismatchFailsOnAllRanksAndLeavesDataAndGroupIntact) {
  GetParam().spawn(3, [](ProcessGroup& group) {
    for (const std::int64_t count : {20, 50'000}) {
      const Tensor t = make_tensor(group, count + (group.rank() == 1), DType::f32, Layout::shared);
      fill(t, group.rank());
      const WorkPtr work = group.allreduce(t);
      try {
        work->wait();
        throw std::runtime_error("no mismatch was detected");
      } catch (const Mismatch& e) {
        EXPECT_THAT(e.what(),
                    ::testing::HasSubstr("rank 1: allreduce of " + std::to_string(count + 1) + " float32, sum"));
        EXPECT_EQ(e.ranks(), std::vector{1});
      }
      expect(t, expected_input(t, group.rank()), "untouched");
      const WorkPtr other = group.rank() == 2 ? group.broadcast(t) : group.barrier();
      EXPECT_THAT([&] { other->wait(); }, throws_naming<Mismatch>({2}));
      const std::int64_t first = 3 + group.rank();  // equal totals, but different tensor sizes
      const WorkPtr cut = group.allreduce_coalesced({t.slice(0, 0, first), t.slice(0, first, 10)});
      EXPECT_THAT([&] { cut->wait(); },
                  ::testing::ThrowsMessage<Mismatch>(::testing::HasSubstr("sizes of the tensors in the list differ")));
      group.barrier()->wait();
    }
  });
}

TEST_P(GroupFailures, AbortNamesTheRank) {
  GetParam().spawn(3, [](ProcessGroup& group) {
    group.barrier()->wait();
    const Tensor t = Tensor::zeros({100'000});
    if (group.rank() == 1) {
      group.abort("the hook failed: test failure");
      EXPECT_THAT([&] { group.barrier()->wait(); }, throws_naming<Aborted>({1}));
      return;
    }
    try {
      group.allreduce(t)->wait();
      throw std::runtime_error("an allreduce without rank 1");
    } catch (const Aborted& e) {
      EXPECT_THAT(e.what(), ::testing::HasSubstr("rank 1"));
      EXPECT_THAT(e.what(), ::testing::HasSubstr("test failure"));
      EXPECT_EQ(e.ranks(), std::vector{1});
    }
    EXPECT_THROW(group.barrier()->wait(), Aborted);
  });
}

TEST_P(GroupFailures, DepartureNamesTheRank) {
  for (int round = 0; round < 5; ++round) {
    GetParam().spawn(4, [](ProcessGroup& group) {
      group.barrier()->wait();
      if (group.rank() == 2) {
        group.shutdown();
        return;
      }
      EXPECT_THAT([&] { group.barrier()->wait(); },
                  ::testing::AllOf(::testing::ThrowsMessage<PeerLost>(::testing::HasSubstr("rank 2 left the group")),
                                   throws_naming<PeerLost>({2})));
    });
  }
}

TEST_P(GroupFailures, TimeoutNamesTheMissingRanks) {
  GetParam().spawn(3, [](ProcessGroup& group) {
    group.barrier()->wait();
    if (group.rank() == 2) {
      // Rank 2 does not join the barrier. Its own receive fails when the other ranks time out.
      EXPECT_THROW(
          {
            const Tensor t = Tensor::zeros({1});
            group.recv(t, 0, {.tag = 9})->wait();
          },
          Aborted);
      return;
    }
    try {
      group.barrier({.timeout = Milliseconds(50)})->wait();
      throw std::runtime_error("a barrier without rank 2");
    } catch (const Timeout& e) {  // the other waiting rank may be late, too
      EXPECT_THAT(e.what(), ::testing::ContainsRegex("rank ([01], )?2 did not join"));
      EXPECT_THAT(e.ranks(), ::testing::Contains(2));
    } catch (const Aborted& e) {  // or may have timed out first
      EXPECT_THAT(e.what(), ::testing::ContainsRegex("rank ([01], )?2 did not join"));
      EXPECT_EQ(e.ranks(), std::vector{1 - group.rank()});
    }
  });
}

TEST_P(GroupFailures, MonitoredBarrierNamesMissingRanks) {
  for (const bool all : {false, true}) {
    GetParam().spawn(4, [all](ProcessGroup& group) {
      group.monitored_barrier();
      if (group.rank() != 0) {
        const Tensor t = Tensor::zeros({1});
        EXPECT_THROW(group.recv(t, 0)->wait(), Aborted);
        return;
      }
      try {
        group.monitored_barrier({.timeout = Milliseconds(30), .wait_all_ranks = all});
        throw std::runtime_error("a barrier without the others");
      } catch (const Timeout& e) {
        const std::string who = all ? "Ranks 1, 2, 3" : "Rank 1";
        EXPECT_THAT(e.what(), ::testing::StartsWith("[Rank 0]: " + who + " failed to pass monitoredBarrier in "));
      }
    });
  }
}

std::vector<GroupFixture> failure_reporting_fixtures() {
  std::vector<GroupFixture> fixtures = group_fixtures();
  std::erase_if(fixtures, [](const GroupFixture& fixture) { return !fixture.reports_failures; });
  return fixtures;
}

// Some test programs have only groups that do not report failures.
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(GroupFailures);
INSTANTIATE_TEST_SUITE_P(Fixtures, GroupFailures, ::testing::ValuesIn(failure_reporting_fixtures()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
