// Tests CompressHook: residuals, saved state, statistics and invalid arguments.
#include <hookline/hook/compress_hook.hpp>

#include <cmath>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/hook/wrappers.hpp>

#include "harness/spawn.hpp"
#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

/// Returns a bucket of values that depend on rank and step.
GradBucket bucket_of(const Layout& layout, int rank, int step, std::size_t index = 0, std::size_t count = 1) {
  const auto value = [&](std::int64_t i) {
    return std::sin(0.1F * static_cast<float>(i + step) + static_cast<float>(rank));
  };
  return bucket_with(layout, value, index, count);
}

TEST(CompressHook, ResumesBitForBit) {
  for (const char* text : {"int4 | error_feedback", "int8(rounding=stochastic, seed=5)", "allreduce | error_feedback",
                           "int4(rounding=stochastic) | where(name=a, fallback=int8) | error_feedback"}) {
    threads_fixture().spawn(3, [&](ProcessGroup& group) {
      const Layout two = layout({Dims{30, 20}, Dims{77}}, {"a", "b"});
      const auto whole = make_hook(text, group.shared_from_this());
      const auto first = make_hook(text, group.shared_from_this());
      std::vector<std::byte> state;
      Tensor expected, resumed;
      for (int step = 0; step < 4; ++step) {
        expected = run(whole, bucket_of(two, group.rank(), step));
        if (step < 2) run(first, bucket_of(two, group.rank(), step));
      }
      state = save_state(*first, group);
      const auto second = make_hook(text, group.shared_from_this());
      load_state(*second, group, state);
      for (int step = 2; step < 4; ++step) resumed = run(second, bucket_of(two, group.rank(), step));
      require(same_bits(expected, resumed), std::string(text) + ": a resumed run has different bits");
      const auto fresh = make_hook(text, group.shared_from_this());
      for (int step = 2; step < 4; ++step) resumed = run(fresh, bucket_of(two, group.rank(), step));
      require(std::string(text).starts_with("allreduce") || !same_bits(expected, resumed), "the state had no effect");
    });
  }
}

// Rebucketing may increase the number of buckets.
TEST(CompressHook, ResumesBucketAddedLaterBitForBit) {
  const auto group = single_rank_group();
  const auto hook = make_hook("int8(rounding=stochastic)", group);
  const Layout one = layout({Dims{600}}, {"a"});
  const auto step = [&](const HookPtr& with, int number, std::size_t buckets) {
    Tensor last;
    with->begin_step({});
    for (std::size_t b = 0; b < buckets; ++b) last = run(with, bucket_of(one, 0, number, b, buckets));
    with->end_step({});
    return last;
  };
  for (int s = 0; s < 3; ++s) step(hook, s, s < 2 ? 1 : 2);
  const auto resumed = make_hook("int8(rounding=stochastic)", group);
  load_state(*resumed, *group, save_state(*hook, *group));
  EXPECT_TRUE(same_bits(step(hook, 3, 2), step(resumed, 3, 2)));
}

// With per_parameter, rebucketing can move the selected parameter into a new bucket.
TEST(CompressHook, ResidualsFollowParametersIntoNewBuckets) {
  const auto group = single_rank_group();
  const auto hook = make_hook("int4(block=4) | error_feedback", group);
  const auto other = make_hook("int4(block=4) | error_feedback", group);
  const Layout before = layout({Dims{8}}, {"a"});
  const Layout after = layout({Dims{8}}, {"a"});
  const auto step = [](const HookPtr& with, GradBucket bucket) {
    with->begin_step({});
    const Tensor result = run(with, std::move(bucket));
    with->end_step({});
    return result;
  };
  for (const auto& h : {hook, other}) step(h, bucket_of(before, 0, 0, 0, 2));
  const Tensor stayed = step(hook, bucket_of(before, 0, 1, 0, 2));
  EXPECT_TRUE(same_bits(stayed, step(other, bucket_of(after, 0, 1, 1, 2))));
  EXPECT_EQ(save_state(*hook, *group), save_state(*other, *group)) << "an outdated residual was saved";
}

TEST(CompressHook, ResidualsFollowParametersIntoOtherBuckets) {
  const auto group = single_rank_group();
  const auto hook = make_hook("int4(block=4) | error_feedback", group);
  const auto other = make_hook("int4(block=4) | error_feedback", group);
  const Layout ab = layout({Dims{4}, Dims{8}}, {"a", "b"});
  const Layout ba = layout({Dims{8}, Dims{4}}, {"b", "a"});
  run(hook, bucket_of(ab, 0, 0));
  run(other, bucket_of(ab, 0, 0));
  // Equal values under equal names must give equal results in any bucket.
  GradBucket straight = bucket_of(ab, 0, 1);
  GradBucket swapped(0, 1, Tensor::empty({12}), ba);
  swapped.gradients()[0].copy_from(straight.gradients()[1]);
  swapped.gradients()[1].copy_from(straight.gradients()[0]);
  run(hook, straight);
  run(other, swapped);
  EXPECT_TRUE(same_bits(straight.gradients()[0].clone(), swapped.gradients()[1].clone()));
  EXPECT_TRUE(same_bits(straight.gradients()[1].clone(), swapped.gradients()[0].clone()));
}

TEST(CompressHook, BucketsMayAlternateBetweenSparseAndDense) {
  const auto hook = make_hook("int8 | error_feedback", single_rank_group());
  const Layout dense = layout({Dims{30}}, {"a"});
  for (int step = 0; step < 4; ++step) {
    if (step % 2 == 0) {
      run(hook, bucket_of(dense, 0, step));
      EXPECT_GT(hook->stats()[0].residual_norm, 0);
      continue;
    }
    const Tensor rows = Tensor::zeros({5}, DType::i64);
    const Tensor values = Tensor::full({20}, 3);
    const Tensor mean = run(hook, GradBucket(0, 1, values, layout({Dims{5, 4}}, {}), rows));
    EXPECT_FLOAT_EQ(mean.slice(0, 19, 20).item<float>(), 3);
    EXPECT_EQ(hook->stats()[0].residual_norm, 0);
  }
}

TEST(CompressHook, RejectsStateOfAnotherHookModelOrWorldSize) {
  const auto group = single_rank_group();
  const auto hook = make_hook("int4 | error_feedback", group);
  run(hook, bucket_of(layout({Dims{10}}, {"w"}), 0, 0));
  const auto state = save_state(*hook, *group);
  const auto message = [&](const HookPtr& into, std::span<const std::byte> bytes) -> std::string {
    try {
      load_state(*into, *group, bytes);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(message(make_hook("int8 | error_feedback", group), state), HasSubstr("the hook int4"));
  threads_fixture().spawn(2, [&](ProcessGroup& pair) {
    const auto here = make_hook("int4 | error_feedback", pair.shared_from_this());
    EXPECT_THROW(load_state(*here, pair, state), InvalidArgument);
  });
  const auto again = make_hook("int4 | error_feedback", group);
  load_state(*again, *group, state);
  EXPECT_THROW(run(again, bucket_of(layout({Dims{11}}, {"w"}), 0, 0)), InvalidArgument);
  for (std::size_t size = 0; size < state.size(); ++size) {
    EXPECT_NE(message(again, std::span(state).first(size)), "") << size;
  }
  for (std::size_t i = 0; i < state.size(); ++i) {  // corruption may go unnoticed but must not crash
    auto corrupt = state;
    corrupt[i] ^= std::byte{0xff};
    (void)message(again, corrupt);
  }
}

TEST(CompressHook, ReportsStats) {
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    const auto hook = make_hook("int8 | error_feedback | compare", group.shared_from_this());
    const Layout one = layout({Dims{1024}}, {"w"});
    run(hook, bucket_of(one, group.rank(), 0, 0, 2));
    run(hook, bucket_of(one, group.rank(), 0, 1, 2));
    const std::vector<HookStats> costs = hook->stats();
    require(costs.size() == 2 && costs[1].bucket == 1, "two buckets");
    require(costs[0].values == 1024 && costs[0].bytes_sent == 32 + 1024 + 2 * 8, "bytes sent");
    require(costs[0].ratio > 3.8 && costs[0].ratio < 4, "ratio");
    require(costs[0].encode_time > 0 && costs[0].decode_time > 0, "times");
    require(costs[0].residual_norm > 0, "residual norm");
    require(costs[0].relative_error && *costs[0].relative_error > 0 && *costs[0].relative_error < 0.01,
            "relative error");
  });
}

TEST(CompressHook, ReportsResidualNormForEveryFloatingPointType) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    threads_fixture().spawn(2, [&](ProcessGroup& group) {
      const auto hook = make_hook("int8 | compare", group.shared_from_this());
      const GradBucket values = bucket_of(layout({Dims{1024}}, {"w"}), group.rank(), 0, 0, 1);
      const Tensor cast = Tensor::empty({1024}, dtype);
      for (std::int64_t i = 0; i < 1024; ++i) cast.slice(0, i, i + 1).fill(values.buffer().data<float>()[i]);
      run(hook, GradBucket(0, 1, cast, values.layout()));
      const double error = hook->stats().at(0).relative_error.value();
      require(error > 1e-4 && error < 0.02, fmt::format("{} of {}", error, name(dtype)));
    });
  }
}

TEST(CompressHook, ContinuationAfterErrorMeasurementMayReadStats) {
  Promise<Tensor> promise;
  const auto late = [future = promise.get_future()](GradBucket&) { return future; };
  const auto hook = with_error_measurement(make_hook(late), single_rank_group());
  GradBucket bucket = bucket_of(layout({Dims{8}}, {"w"}), 0, 0);
  std::size_t costs = 0;
  Promise<void> followed;
  run_and_parse(hook, bucket).on_done([&] {
    costs = hook->stats().size();
    followed.set_value();
  });
  promise.set_value(bucket.buffer());
  followed.get_future().wait(20s);
  EXPECT_EQ(costs, 1u);
}

TEST(CompressHook, LogsOneLinePerBucket) {
  std::vector<std::string> lines;
  const auto hook =
      with_logging(make_hook("fp16", single_rank_group()), [&](const std::string& line) { lines.push_back(line); });
  run(hook, bucket_of(layout({Dims{5}}, {"w"}), 0, 0));
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_THAT(lines[0], HasSubstr("bucket 0 of 1, float32[5]"));
  EXPECT_THAT(lines[0], HasSubstr("fp16"));
}

TEST(CompressHook, NonFiniteValuesAreNotFedBack) {
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    for (const char* text : {"int8 | error_feedback", "noop | error_feedback"}) {
      const auto hook = make_hook(text, group.shared_from_this());
      const Layout one = layout({Dims{600}}, {"w"});
      for (int step = 0; step < 3; ++step) {
        GradBucket bucket = bucket_of(one, group.rank(), step);
        if (step == 0) bucket.buffer().data<float>()[3] = std::numeric_limits<float>::quiet_NaN();
        run(hook, bucket);
        require(std::isnan(bucket.buffer().data<float>()[3]) == (step == 0),
                std::string(text) + " in step " + std::to_string(step));
      }
    }
  });
}

TEST(CompressHook, RejectsInvalidOptions) {
  const auto group = single_rank_group();
  for (const char* text :
       {"int8(block=-1)", "int8(block=few)", "int8(bits=7)", "int4(range=wide)", "fp16(block=3)", "int8(rounding=up)",
        "allreduce | int8", "error_feedback", "int8 | where(dims=x)", "int8 | where(fallback=y)"}) {
    EXPECT_THROW(make_hook(text, group), InvalidArgument) << text;
  }
  EXPECT_THROW(CompressHook(group, nullptr), InvalidArgument);
  EXPECT_THROW(with_cast(make_hook("noop", group), DType::f32, group), InvalidArgument);
}

}  // namespace
}  // namespace hookline::testing
