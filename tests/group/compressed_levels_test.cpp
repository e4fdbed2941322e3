// Reductions of encoded values on groups with levels: full precision inside a host, encoded between hosts.
#include <cmath>
#include <cstring>

#include <gtest/gtest.h>

#include <hookline/codec/make_codec.hpp>
#include <hookline/group/compared.hpp>
#include <hookline/group/compressed.hpp>

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

// 2049 is not a float16, 2049 + 1 is: only who adds inside the host first gets it right. Ranks 0 and 2 share a host.
TEST(CompressedLevels, NothingIsRoundedInsideAHost) {
  testing::layered_threads_world().spawn(4, [](ProcessGroup& group) {
    require(group.capabilities().levels, "no levels");
    for (const std::int64_t count : {1, 5, 1000, 70'001}) {
      const Tensor t = group.empty({count});
      t.fill(group.rank() == 0 ? 2049 : group.rank() == 2 ? 1 : 0);
      group.allreduce(t, make_codec("fp16"))->wait(30s);
      for (std::int64_t i = 0; i < count; ++i) require(t.data<float>()[i] == 2050, "element " + std::to_string(i));
    }
  });
}

TEST(CompressedLevels, OnlyTheSliceOfARankGoesToAnotherHost) {
  testing::layered_threads_world().spawn(4, [](ProcessGroup& group) {
    CompressedReduction reduction(group.shared_from_this(), make_codec("fp16"));
    const Tensor t = group.empty({std::int64_t{4} * 32768});
    t.fill(1);
    reduction.allreduce(t).wait(30s);
    require(reduction.stats().sent_bytes == 2 * (32 + 2 * 32768), std::to_string(reduction.stats().sent_bytes));
    require(reduction.stats().ratio > 1.99, "ratio " + std::to_string(reduction.stats().ratio));
    require(reduction.stats().values == 4 * 32768, "values");
  });
}

TEST(CompressedLevels, MeansAndTheSameBitsOnUnevenHosts) {
  for (const int ranks : {3, 4, 7}) {
    testing::layered_threads_world().spawn(ranks, [ranks](ProcessGroup& group) {
      const Tensor t = Tensor::empty({10'007});
      for (const std::string codec : {"int8", "int4(block=64, rounding=stochastic)", "bf16"}) {
        double mean = 0;
        for (int r = 0; r < ranks; ++r) mean += std::sin(static_cast<double>(r)) / ranks;
        t.fill(std::sin(static_cast<double>(group.rank())));
        group.allreduce(t, make_codec(codec), {.op = ReduceOp::avg})->wait(30s);
        require(std::abs(static_cast<double>(t.data<float>()[10'006]) - mean) < 0.3, codec + " is far off");
        same_on_all_ranks(group, t);
      }
    });
  }
}

// Two groups cannot both do what is done between the hosts: it keeps what the next step needs.
TEST(CompressedLevels, ComparedGroupsReduceWithoutThem) {
  testing::layered_threads_world().spawn(4, [](ProcessGroup& group) {
    const auto both = compared(group.shared_from_this(), group.new_group({0, 1, 2, 3}));
    CompressedReduction reduction(both, make_codec("int8"), {.error_feedback = true});
    for (int step = 0; step < 20; ++step) {
      const Tensor t = Tensor::full({10'007}, group.rank() + 1);
      reduction.allreduce(t).wait(30s);
      for (std::int64_t i = 0; i < t.numel(); ++i) require(std::abs(t.data<float>()[i] - 10) < 0.5F, "the sum");
    }
  });
}

// What encoding lost is made up for: the mean of many steps is nearer than any step can be.
TEST(CompressedLevels, ErrorsOfTheOwnSliceAreKept) {
  testing::layered_threads_world().spawn(4, [](ProcessGroup& group) {
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
    require(reduction.kept_error_norm() > 0, "nothing is kept");
  });
}

}  // namespace
}  // namespace hookline
