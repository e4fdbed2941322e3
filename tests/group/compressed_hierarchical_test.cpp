// Tests hierarchical compressed allreduce: full precision inside a host, encoded between hosts.
#include <cmath>
#include <cstring>

#include <gmock/gmock.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/core/error.hpp>
#include <hookline/group/compressed.hpp>
#include <hookline/group/cross_check.hpp>

#include "harness/spawn.hpp"

namespace hookline {
namespace {

using namespace std::chrono_literals;
using testing::require;

void same_on_all_ranks(ProcessGroup& group, const Tensor& t) {
  const Tensor all = Tensor::empty({t.numel() * group.size()});
  group.allgather_into_tensor(all, t)->wait(30s);
  for (int r = 0; r < group.size(); ++r) {
    require(std::memcmp(all.bytes() + static_cast<std::size_t>(r) * t.nbytes(), t.bytes(), t.nbytes()) == 0,
            "differs from rank " + std::to_string(r));
  }
}

// 2049 is not representable in float16, 2049 + 1 is. Ranks 0 and 2 share a host, so their sum must be formed first.
TEST(CompressedHierarchical, FullPrecisionInsideHost) {
  testing::hierarchical_threads_fixture().spawn(4, [](ProcessGroup& group) {
    require(group.capabilities().hierarchical, "the group is not hierarchical");
    for (const std::int64_t count : {1, 5, 1000, 70'001}) {
      const Tensor t = group.empty({count});
      t.fill(group.rank() == 0 ? 2049 : group.rank() == 2 ? 1 : 0);
      group.allreduce(t, make_codec("fp16"))->wait(30s);
      for (std::int64_t i = 0; i < count; ++i) require(t.data<float>()[i] == 2050, "element " + std::to_string(i));
    }
  });
}

TEST(CompressedHierarchical, SendsOnlyOwnSliceBetweenHosts) {
  testing::hierarchical_threads_fixture().spawn(4, [](ProcessGroup& group) {
    CompressedReduction reduction(group.shared_from_this(), make_codec("fp16"));
    const Tensor t = group.empty({std::int64_t{4} * 32768});
    t.fill(1);
    reduction.allreduce(t).wait(30s);
    require(reduction.stats().bytes_sent == 2 * (32 + 2 * 32768), std::to_string(reduction.stats().bytes_sent));
    require(reduction.stats().ratio > 1.99, "ratio " + std::to_string(reduction.stats().ratio));
    require(reduction.stats().values == 4 * 32768, "values");
  });
}

TEST(CompressedHierarchical, MeansAndSameBitsOnUnevenHosts) {
  for (const int ranks : {3, 4, 7}) {
    testing::hierarchical_threads_fixture().spawn(ranks, [ranks](ProcessGroup& group) {
      const Tensor t = Tensor::empty({10'007});
      for (const std::string codec : {"int8", "int4(block=64, rounding=stochastic)", "bf16"}) {
        double mean = 0;
        for (int r = 0; r < ranks; ++r) mean += std::sin(static_cast<double>(r)) / ranks;
        t.fill(std::sin(static_cast<double>(group.rank())));
        group.allreduce(t, make_codec(codec), {.op = ReduceOp::avg})->wait(30s);
        require(std::abs(static_cast<double>(t.data<float>()[10'006]) - mean) < 0.3, codec + ": wrong mean");
        same_on_all_ranks(group, t);
      }
    });
  }
}

// Includes codecs with equal message sizes, and ops that differ only in the factor.
TEST(CompressedHierarchical, DifferentCodecsRaiseMismatch) {
  for (const int ranks : {3, 4}) {
    testing::hierarchical_threads_fixture().spawn(ranks, [](ProcessGroup& group) {
      const Tensor t = Tensor::full({40'000}, group.rank() + 1);
      const auto differs = [&](const char* ours, const char* theirs, ReduceOp our_op, int who) {
        const bool other = group.rank() == who;
        EXPECT_THAT([&] { group.allreduce(t, make_codec(other ? theirs : ours), {.op = our_op})->wait(30s); },
                    ::testing::ThrowsMessage<Mismatch>(::testing::HasSubstr("use different codecs between hosts")));
        EXPECT_EQ(t.data<float>()[39'999], static_cast<float>(group.rank() + 1)) << ours << " and " << theirs;
      };
      for (int who = 0; who < group.size(); ++who) {
        differs("int8", "int4", ReduceOp::sum, who);
        differs("fp16", "bf16", ReduceOp::sum, who);
        differs("fp16", "fp16", group.rank() == who ? ReduceOp::avg : ReduceOp::sum, who);
      }
      group.allreduce(t, make_codec("fp16"))->wait(30s);
      EXPECT_EQ(t.data<float>()[0], static_cast<float>(group.size() * (group.size() + 1) / 2));
    });
  }
}

/// An inter-host stage that never completes. The second host has a longer timeout, so the first one times out.
class UnansweredReducer final : public InterHostReducer {
 public:
  std::string name() const override { return "unanswered"; }
  void reduce(const std::shared_ptr<Backend>& inter_host, const Tensor& slice, std::size_t, int lane,
              Milliseconds timeout) override {
    Operation receive{.type = OpType::recv, .inputs = {}, .outputs = {slice}};
    receive.root = 1 - inter_host->rank();
    inter_host->start(std::move(receive), lane, timeout + inter_host->rank() * Milliseconds(10'000))->wait(30s);
  }
};

// Ranks 0 and 2 share a host and only rank 0 owns a slice. Rank 2 waits for rank 0 and must not blame it.
TEST(CompressedHierarchical, AllRanksNameUnresponsiveRemoteRank) {
  for (int round = 0; round < 10; ++round) {
    testing::hierarchical_threads_fixture().spawn(3, [](ProcessGroup& group) {
      UnansweredReducer between;
      const Tensor t = Tensor::zeros({40'000});
      Operation sum{.type = OpType::allreduce, .inputs = {}, .outputs = {t}};
      sum.inter_host_reducer = &between;
      sum.timeout = Milliseconds(50);
      EXPECT_THAT([&] { group.run(std::move(sum))->wait(30s); },
                  ::testing::ThrowsMessage<Error>(::testing::HasSubstr("rank 1 did not join")));
    });
  }
}

// The inter-host stage is stateful, so the two groups of a cross-check cannot both run it.
TEST(CompressedHierarchical, CrossCheckedGroupsUseFlatReduction) {
  testing::hierarchical_threads_fixture().spawn(4, [](ProcessGroup& group) {
    const auto both = with_cross_check(group.shared_from_this(), group.new_group({0, 1, 2, 3}));
    CompressedReduction reduction(both, make_codec("int8"), {.error_feedback = true});
    for (int step = 0; step < 20; ++step) {
      const Tensor t = Tensor::full({10'007}, group.rank() + 1);
      reduction.allreduce(t).wait(30s);
      for (std::int64_t i = 0; i < t.numel(); ++i) require(std::abs(t.data<float>()[i] - 10) < 0.5F, "the sum");
    }
  });
}

// Error feedback: the mean over many steps is closer to the exact value than the first step.
TEST(CompressedHierarchical, KeepsResidualOfOwnSlice) {
  testing::hierarchical_threads_fixture().spawn(4, [](ProcessGroup& group) {
    CompressedReduction reduction(group.shared_from_this(), make_codec("int4"), {.error_feedback = true});
    double first = 0;
    double sum = 0;
    for (int step = 0; step < 40; ++step) {
      const Tensor t = group.empty({1000});
      for (std::int64_t i = 0; i < 1000; ++i) t.data<float>()[i] = i % 7 == 0 ? 1.0F : 0.3F;
      reduction.allreduce(t, {.op = ReduceOp::avg}).wait(30s);
      if (step == 0) first = static_cast<double>(t.data<float>()[1]);
      sum += static_cast<double>(t.data<float>()[1]);
    }
    require(std::abs(sum / 40 - 0.3) < std::abs(first - 0.3) / 5, "mean " + std::to_string(sum / 40));
    require(reduction.residual_norm() > 0, "the residual is zero");
  });
}

}  // namespace
}  // namespace hookline
