// Header exchange of hierarchical groups, inside hosts and then between hosts, with piggybacked small payloads.
#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;

float value(int rank, std::int64_t i) { return static_cast<float>(rank + 1) * static_cast<float>(i % 100); }

Tensor values(int rank, std::int64_t count) {
  Tensor t = Tensor::empty({count});
  for (std::int64_t i = 0; i < count; ++i) t.data<float>()[i] = value(rank, i);
  return t;
}

void expect_untouched(const Tensor& t, int rank) {
  for (std::int64_t i = 0; i < t.numel(); ++i) ASSERT_EQ(t.data<const float>()[i], value(rank, i)) << "element " << i;
}

struct Case {
  GroupFixture fixture;
  int ranks;  ///< total, evenly distributed over the hosts
};
class HierarchicalAgreement : public ::testing::TestWithParam<Case> {
 protected:
  static void spawn(const RankBody& body) { GetParam().fixture.spawn(GetParam().ranks, body); }
};

// Covers payloads that fit into a slot, piggyback on headers, or are sent separately, with equal and unequal slices.
TEST_P(HierarchicalAgreement, ReductionsOnEveryPath) {
  spawn([](ProcessGroup& group) {
    for (const std::int64_t count : {256, 257, 512, 1024, 1025, 4096, 7168, 11999, 12000, 12288, 12289, 30001}) {
      const Tensor t = values(group.rank(), count);
      group.allreduce(t, {.op = ReduceOp::avg})->wait();
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(t.data<const float>()[i], static_cast<float>(group.size() + 1) / 2 * static_cast<float>(i % 100))
            << count << " elements, " << i;
      }
      const Tensor strided = Tensor::zeros({count, 2});
      const Tensor column = strided.slice(1, 0, 1);
      column.copy_from(values(group.rank(), count).reshape({count, 1}));
      group.allreduce(column, {.op = ReduceOp::max})->wait();
      for (std::int64_t i = 0; i < count; ++i) {
        ASSERT_EQ(strided.data<const float>()[2 * i], static_cast<float>(group.size()) * static_cast<float>(i % 100))
            << count << " elements, " << i;
        ASSERT_EQ(strided.data<const float>()[2 * i + 1], 0);
      }
    }
  });
}

// One rank, all ranks of a host, or one rank of each host differ. All ranks get all signatures, the data is unchanged,
// and the group remains usable.
TEST_P(HierarchicalAgreement, MismatchIsReportedOnAllRanks) {
  spawn([](ProcessGroup& group) {
    for (const std::int64_t count : {10, 1024, 5000, 100'000}) {
      for (const std::vector<int>& others : std::vector<std::vector<int>>{{0}, {3}, {0, 1}, {2, 3}, {0, 2}, {1, 3}}) {
        const bool differs = std::count(others.begin(), others.end(), group.rank()) > 0;
        const std::string other = "rank " + std::to_string(others[0]) + ": ";
        const Tensor t = values(group.rank(), count);
        const Tensor shorter = t.slice(0, 0, count - 1);
        EXPECT_THAT([&] { group.allreduce(differs ? shorter : t)->wait(); },
                    ThrowsMessage<Mismatch>(HasSubstr(other + "allreduce of " + std::to_string(count - 1))));
        const ReduceOp op = differs ? ReduceOp::avg : ReduceOp::sum;
        EXPECT_THAT(
            [&] { group.allreduce(t, {.op = op})->wait(); },
            ThrowsMessage<Mismatch>(HasSubstr(other + "allreduce of " + std::to_string(count) + " float32, avg")));
        EXPECT_THAT([&] { (differs ? group.barrier() : group.allreduce(t))->wait(); },
                    ThrowsMessage<Mismatch>(HasSubstr(other + "barrier")));
        expect_untouched(t, group.rank());
        group.barrier()->wait();
      }
    }
  });
}

TEST_P(HierarchicalAgreement, MissingRankIsNamedOnAllHosts) {
  for (const int missing : {0, 3}) {
    for (const std::int64_t count : {1, 4096}) {
      spawn([&](ProcessGroup& group) {
        group.barrier()->wait();
        if (group.rank() == missing) {
          const Tensor t = Tensor::zeros({1});
          EXPECT_THROW(group.recv(t, (missing + 1) % group.size(), {.tag = 9})->wait(), Aborted);
          return;
        }
        const std::string rank_text = "rank " + std::to_string(missing);
        try {
          group.allreduce(values(group.rank(), count), {.timeout = Milliseconds(300)})->wait();
          throw std::runtime_error("an allreduce without rank " + std::to_string(missing));
        } catch (const Timeout& e) {
          EXPECT_THAT(e.what(), HasSubstr(rank_text + " did not join"));
        } catch (const Aborted& e) {  // another rank timed out first
          EXPECT_THAT(e.what(), HasSubstr(rank_text + " did not join"));
        } catch (const PeerLost& e) {  // or the missing rank saw the failure and left
          EXPECT_THAT(e.what(), HasSubstr(rank_text + " left the group"));
        }
      });
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, HierarchicalAgreement,
                         ::testing::Values(Case{hierarchical_threads_fixture(), 4},
                                           Case{hierarchical_processes_fixture(), 4},
                                           Case{hierarchical_hosts_fixture(), 6}),
                         [](const auto& test) { return test.param.fixture.name; });

}  // namespace
}  // namespace hookline::testing
