// Tests function hooks and hook wrappers: invalid arguments, dtypes and result layouts.
#include <hookline/hook/comm_hook.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/hook/wrappers.hpp>

#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// True if `co_return value` compiles in a hook's run_hook.
template <class T>
concept CanReturnFromRunHook =
    requires(Future<HookResult>::promise_type& promise, T value) { promise.return_value(std::move(value)); };
static_assert(CanReturnFromRunHook<Tensor> && CanReturnFromRunHook<std::vector<Tensor>>);
static_assert(!CanReturnFromRunHook<int> && !CanReturnFromRunHook<double> && !CanReturnFromRunHook<std::nullptr_t>);
static_assert(!CanReturnFromRunHook<std::any> && !CanReturnFromRunHook<std::string> && !CanReturnFromRunHook<Dims>);
static_assert(!CanReturnFromRunHook<std::vector<float>> && !CanReturnFromRunHook<Future<Tensor>>);
static_assert(!std::is_default_constructible_v<HookResult>, "co_return {}");
static_assert(!std::is_constructible_v<HookResult, int> && !std::is_constructible_v<HookResult, std::any>);

/// True if make_hook takes a function object that returns R.
template <class R>
concept CanMakeHook = requires(std::function<R(GradBucket&)> function) { make_hook(function); };
template <class R>
concept CanMakeHookWithState = requires(std::function<R(ProcessGroup&, GradBucket&)> function,
                                        std::shared_ptr<ProcessGroup> group) { make_hook(function, group); };
static_assert(CanMakeHook<Future<Tensor>> && CanMakeHookWithState<Future<Tensor>>);
static_assert(!CanMakeHook<Future<int>> && !CanMakeHookWithState<Future<int>> && !CanMakeHookWithState<Tensor>);

GradBucket four_ones() {
  return bucket_with(layout({Dims{2}, Dims{2}}, {"a", "b"}), [](auto) { return 1; });
}

TEST(HookResult, HoldsATensorOrAnOpaqueObject) {
  const Tensor buffer = Tensor::zeros({4});
  EXPECT_EQ(tensor_of(buffer).bytes(), buffer.bytes());
  EXPECT_EQ(tensor_of(std::vector<Tensor>{buffer}).bytes(), buffer.bytes());
  EXPECT_EQ(HookResult(buffer).opaque_as<Tensor>(), nullptr);
  const HookResult number = HookResult::opaque(5);
  ASSERT_NE(number.opaque_as<int>(), nullptr);
  EXPECT_EQ(*number.opaque_as<int>(), 5);
  EXPECT_EQ(number.opaque_as<double>(), nullptr);
  const auto message = [](const HookResult& result) {
    try {
      return to_string(tensor_of(result));
    } catch (const InvalidArgument& e) {
      return std::string(e.what());
    }
  };
  EXPECT_THAT(message(number), HasSubstr("expected a Tensor or a list of one Tensor, got int"));
  EXPECT_THAT(message(HookResult::opaque({})), HasSubstr("got nothing"));
  EXPECT_THAT(message(std::vector<Tensor>(2)), HasSubstr("got a list of 2"));
}

TEST(FunctionHooks, LambdasWithState) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    const HookPtr average = make_hook(
        [](ProcessGroup& process_group, GradBucket& bucket) -> Future<Tensor> {
          co_await process_group.allreduce(bucket.buffer());
          bucket.buffer() *= 1.0 / process_group.size();
          co_return bucket.buffer();
        },
        shared);
    GradBucket bucket = GradBucket::of(Tensor::full({4}, 1 + group.rank()));
    require(run_and_parse(average, bucket).wait().data<float>()[3] == 1.5F, "the mean of 1 and 2");
  });
}

// The hook owns the lambda with its captures, which a suspended coroutine reads, and shares the state.
TEST(FunctionHooks, LambdasWithStateOwnTheirCaptures) {
  struct Steps {
    int count = 0;
  };
  const auto steps = std::make_shared<Steps>();
  Promise<void> promise;
  HookPtr hook = make_hook(
      [wait = promise.get_future(), factors = std::vector<double>{3}, calls = 0](
          Steps& state, GradBucket& bucket) mutable -> Future<Tensor> {
        ++calls;
        co_await wait;
        state.count += calls;
        bucket.buffer() *= factors[0];
        co_return bucket.buffer();
      },
      steps, {.name = "scaled"});
  EXPECT_EQ(hook->name(), "scaled");
  GradBucket bucket = four_ones();
  Future<Tensor> first = run_and_parse(hook, bucket);
  EXPECT_FALSE(first.done());
  promise.set_value();
  EXPECT_EQ(first.wait().data<float>()[0], 3.0F);
  (void)run_and_parse(hook, bucket).wait();
  EXPECT_EQ(steps->count, 3) << "a mutable lambda keeps its captures between buckets";
  EXPECT_EQ(bucket.buffer().data<float>()[0], 9.0F);
  const std::weak_ptr<Steps> kept = steps;
  EXPECT_EQ(kept.use_count(), 2);
  hook.reset();
  EXPECT_EQ(kept.use_count(), 1);
}

TEST(FunctionHooks, RejectNullFunctionOrState) {
  Future<Tensor> (*const function)(ProcessGroup&, GradBucket&) = nullptr;
  const auto some = [](ProcessGroup&, GradBucket& bucket) { return Future<Tensor>::ready(bucket.buffer()); };
  const auto shared = single_rank_group();
  EXPECT_THROW((void)make_hook(HookFunction()), InvalidArgument);
  EXPECT_THROW((void)make_hook(function, shared), InvalidArgument);
  EXPECT_THROW((void)make_hook(+some, std::shared_ptr<ProcessGroup>()), InvalidArgument);
  EXPECT_THROW((void)make_hook(some, std::shared_ptr<ProcessGroup>()), InvalidArgument);
  EXPECT_THROW((void)make_hook(std::function<Future<Tensor>(ProcessGroup&, GradBucket&)>(), shared), InvalidArgument);
  EXPECT_THROW((void)wrap(make_hook("noop", shared), nullptr), InvalidArgument);
  EXPECT_THROW((void)wrap(nullptr, [](HookPtr, GradBucket& b) { return Future<Tensor>::ready(b.buffer()); }),
               InvalidArgument);
  EXPECT_EQ(wrap(
                make_hook(+some, shared, {.name = "some"}),
                [](HookPtr inner, GradBucket& b) { return run_and_parse(std::move(inner), b); }, "around")
                ->name(),
            "some | around");
}

TEST(HookWrappers, RejectResultsThatDoNotMatchTheBucket) {
  for (const Tensor& wrong :
       {Tensor::zeros({3}), Tensor::zeros({5}), Tensor::zeros({2, 2}), Tensor::zeros({4}, DType::f64)}) {
    const HookPtr inner = make_hook(
        [&](GradBucket& bucket) {
          bucket.set_contribution(bucket.buffer());
          return Future<Tensor>::ready(wrong);
        },
        {.name = "wrong", .reports_contribution = true});
    const auto group = single_rank_group();
    for (const HookPtr& hook :
         {inner, with_error_feedback(inner), with_cast(inner, DType::f16, group), with_error_measurement(inner, group),
          per_parameter(inner, {}, inner), per_parameter(inner, {.name = "a"}, inner),
          with_logging(inner, [](const std::string&) {})}) {
      EXPECT_THROW(run(hook, four_ones()), InvalidArgument) << hook->name() << " of " << to_string(wrong);
    }
  }
}

// Residuals are exact for each floating-point type.
TEST(HookWrappers, AcceptGradientsOfEveryFloatingPointType) {
  const auto group = single_rank_group();
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    DType seen = DType::boolean;
    const auto halve = [&](GradBucket& bucket) {
      seen = bucket.buffer().dtype();
      bucket.buffer() *= 0.5;
      bucket.set_contribution(bucket.buffer());
      return Future<Tensor>::ready(bucket.buffer());
    };
    const HookPtr halves = make_hook(halve, {.name = "halves", .reports_contribution = true});
    const HookPtr fed_back = with_error_feedback(halves);
    const auto bucket = [&] { return GradBucket(0, 1, Tensor::full({4}, 1, dtype), layout({Dims{4}}, {"w"})); };
    EXPECT_EQ(run(fed_back, bucket()).slice(0, 3, 4).item<double>(), 0.5) << name(dtype);
    EXPECT_EQ(run(fed_back, bucket()).slice(0, 3, 4).item<double>(), 0.75) << name(dtype);
    EXPECT_EQ(run(with_cast(halves, DType::f16, group), bucket()).slice(0, 3, 4).item<double>(), 0.5) << name(dtype);
    EXPECT_EQ(seen, dtype == DType::bf16 ? DType::bf16 : DType::f16) << "16-bit buckets are not cast";
  }
}

TEST(HookWrappers, ErrorMeasurementIsNotCountedAsSentBytes) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const auto bytes_of = [&](const char* text) {
      const auto sent = std::make_shared<std::atomic<std::uint64_t>>(0);
      const ContextScope scope({.lane = 1, .bytes_sent = sent});
      run(make_hook(text, group.shared_from_this()), four_ones());
      return sent->load();
    };
    require(bytes_of("allreduce") == 16, "an allreduce of 4 floats");
    require(bytes_of("allreduce | compare") == 16, "the same, compared");
    require(bytes_of("noop | compare") == 0, "noop sends nothing");
  });
}

TEST(HookWrappers, AcceptResultsOfAnyLayout) {
  std::vector<float> every = {1, 90, 2, 90, 3, 90, 4, 90};
  std::vector<float> got;
  const auto run_on = [&](GradBucket& bucket) {
    got.assign(bucket.buffer().data<float>(), bucket.buffer().data<float>() + 4);
    const Tensor result = Tensor::borrow(every).slice(0, 0, 8, 2);
    bucket.set_contribution(result);
    return Future<Tensor>::ready(result);
  };
  const auto hook = with_error_feedback(make_hook(run_on, {.name = "strided", .reports_contribution = true}));
  run(hook, four_ones());
  run(hook, four_ones());
  EXPECT_THAT(got, ElementsAre(1 + (1 - 1), 1 + (1 - 2), 1 + (1 - 3), 1 + (1 - 4)));
}

}  // namespace
}  // namespace hookline::testing
