// Tests per_parameter: parameter filters, step callbacks and residuals of both hooks.
#include <cmath>

#include <gtest/gtest.h>

#include <hookline/hook/registry.hpp>
#include <hookline/hook/wrappers.hpp>

#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

class StepCounter final : public CommHookInterface {
 public:
  Future<HookResult> run_hook(GradBucket& bucket) override { return Future<HookResult>::ready(bucket.buffer()); }
  Tensor parse_hook_result(const HookResult& result) override { return tensor_of(result); }
  void begin_step(const HookStep&) override { ++begun; }
  void end_step(const HookStep&) override { ++ended; }
  int begun = 0, ended = 0;
};

TEST(PerParameter, BothHooksGetStepCallbacks) {
  const auto first = std::make_shared<StepCounter>();
  const auto second = std::make_shared<StepCounter>();
  const HookPtr both = per_parameter(first, {.name = "w*"}, second);
  both->begin_step({});
  for (const auto& hook : {first, second}) {
    EXPECT_EQ(hook->begun, 1);
    EXPECT_EQ(hook->ended, 0);
  }
  both->end_step({});
  for (const auto& hook : {first, second}) EXPECT_EQ(hook->ended, 1);
}

TEST(PerParameter, EachSubsetKeepsItsOwnResidual) {
  const auto group = single_rank_group();
  const auto in_part = make_hook("int4 | where(name=w, fallback=noop) | error_feedback", group);
  const auto alone_there = make_hook("int4 | error_feedback", group);
  const auto value = [](auto i) { return std::sin(0.1 * static_cast<double>(i)); };
  for (int step = 0; step < 4; ++step) {
    GradBucket both = bucket_with(layout({Dims{40}, Dims{6}}, {"w", "b"}), value);
    run(in_part, both);
    const Tensor wanted = run(alone_there, bucket_with(layout({Dims{40}}, {"w"}), value));
    EXPECT_TRUE(same_bits(both.gradients()[0].clone(), wanted)) << step;
    EXPECT_EQ(both.gradients()[1].slice(0, 2, 3).item<float>(), static_cast<float>(value(42))) << "nothing is lost";
  }
}

TEST(PerParameter, FiltersSelectParameters) {
  const ParameterFilter rule{.name = "layer?.w*", .min_size = 4, .max_size = 100, .dims = 2};
  EXPECT_TRUE(rule.matches("layer1.weight", Dims{2, 2}));
  EXPECT_FALSE(rule.matches("layer1.bias", Dims{2, 2}));
  EXPECT_FALSE(rule.matches("layer1.weight", Dims{4}));
  EXPECT_FALSE(rule.matches("layer1.weight", Dims{1, 3}));
  EXPECT_FALSE(rule.matches("layer1.weight", Dims{11, 10}));

  const auto group = single_rank_group();
  const auto hook = make_hook("int4 | where(name=w*, fallback=allreduce)", group);
  GradBucket bucket = bucket_with(layout({Dims{5}, Dims{6}, Dims{7}}, {"b1", "w1", "b2"}),
                                  [](auto i) { return std::sin(0.1 * static_cast<double>(i)); });
  const Tensor before = bucket.buffer().clone();
  run(hook, bucket);
  const auto unchanged = [&](std::int64_t begin, std::int64_t end) {
    return same_bits(before.slice(0, begin, end).clone(), bucket.buffer().slice(0, begin, end).clone());
  };
  EXPECT_TRUE(unchanged(0, 5));
  EXPECT_FALSE(unchanged(5, 11));
  EXPECT_TRUE(unchanged(11, 18));
}

}  // namespace
}  // namespace hookline::testing
