// Contract of hooks: the result is one flat tensor of the bucket's size and dtype, equal on all ranks if the hook
// reduces, in any lane and for successive buckets.
#include "contract/hook_contract.hpp"

#include <cmath>
#include <stdexcept>

#include <hookline/core/error.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/registry.hpp>

namespace hookline::testing {
namespace {

double gradient(int rank, std::int64_t i) { return std::sin(static_cast<double>(i + 1) * (rank + 1)); }

double expected(const HookCase& hook, int rank, int ranks, std::int64_t i) {
  if (!hook.reduces) return gradient(rank, i);
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += gradient(r, i);
  return sum / ranks;
}

GradBucket make_bucket(ProcessGroup& group, std::size_t index, std::size_t count, std::int64_t numel) {
  const std::int64_t rows = numel / 3;
  auto layout = std::make_shared<const BucketLayout>(layout_of({Dims{rows, 2}, Dims{numel - 2 * rows}}));
  const Tensor buffer = group.empty({numel});
  for (std::int64_t i = 0; i < numel; ++i) {
    buffer.data<float>()[i] = static_cast<float>(gradient(group.rank(), i));
  }
  return {index, count, buffer, std::move(layout)};
}

void check(const HookCase& hook, ProcessGroup& group, const Tensor& result, std::int64_t numel) {
  if (result.shape() != Dims{numel} || result.dtype() != DType::f32 || !result.is_contiguous()) {
    throw std::runtime_error("the result is " + to_string(result));
  }
  for (std::int64_t i = 0; i < numel; ++i) {
    const double wanted = expected(hook, group.rank(), group.size(), i);
    if (std::abs(result.data<const float>()[i] - wanted) > hook.tolerance + 1e-6) {
      throw std::runtime_error("element " + std::to_string(i) + " is " + std::to_string(result.data<const float>()[i]) +
                               ", not " + std::to_string(wanted));
    }
  }
}

TEST_P(HookContract, AveragesBucketsOfAnySize) {
  for (const int ranks : {1, 2, 3}) {
    threads_fixture().spawn(ranks, [&](ProcessGroup& group) {
      const HookPtr hook = GetParam().make(group.shared_from_this());
      for (const std::int64_t numel : {1, 5, 700, 70'000}) {
        for (int step = 0; step < 2; ++step) {
          GradBucket bucket = make_bucket(group, 0, 1, numel);
          const HookResult result = hook->run_hook(bucket).wait(Milliseconds(20'000));
          check(GetParam(), group, hook->parse_hook_result(result), numel);
        }
      }
    });
  }
}

TEST_P(HookContract, ConcurrentBucketsInSeparateLanes) {
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    const HookPtr hook = GetParam().make(group.shared_from_this());
    std::vector<GradBucket> buckets;
    std::vector<Future<HookResult>> futures;
    for (std::size_t b = 0; b < 3; ++b) buckets.push_back(make_bucket(group, b, 3, 5000));
    for (std::size_t i = 0; i < 3; ++i) {
      const std::size_t b = group.rank() == 0 ? i : 2 - i;  // another order on each rank
      const ContextScope scope({.lane = 1 + static_cast<int>(b)});
      futures.push_back(hook->run_hook(buckets[b]));
    }
    for (auto& future : futures) check(GetParam(), group, hook->parse_hook_result(future.wait()), 5000);
  });
}

TEST_P(HookContract, HasANameAndRejectsForeignResults) {
  threads_fixture().spawn(1, [&](ProcessGroup& group) {
    const HookPtr hook = GetParam().make(group.shared_from_this());
    EXPECT_FALSE(hook->name().empty());
    EXPECT_THROW((void)hook->parse_hook_result(HookResult::opaque(3)), InvalidArgument);
    EXPECT_THROW((void)hook->parse_hook_result(HookResult::opaque({})), InvalidArgument);
    EXPECT_THROW((void)hook->parse_hook_result(HookResult(std::vector<Tensor>(2))), InvalidArgument);
    EXPECT_EQ(hook->parse_hook_result(HookResult(std::vector<Tensor>(1))).numel(), 0);
  });
}

Future<Tensor> mean(ProcessGroup& group, GradBucket& bucket) {
  co_await group.allreduce(bucket.buffer());
  bucket.buffer() *= 1.0 / group.size();
  co_return bucket.buffer();
}

class TypedHook final : public CppCommHookInterface<std::shared_ptr<ProcessGroup>> {
 public:
  using CppCommHookInterface::CppCommHookInterface;
  Future<HookResult> run_hook(GradBucket& bucket) override {
    const AllreduceOptions options{.op = ReduceOp::avg};
    co_await state_->allreduce(bucket.buffer(), options);
    co_return bucket.buffer();
  }
};

Future<Tensor> pass_on(HookPtr inner, GradBucket& bucket) {
  const Tensor result = co_await run_and_parse(std::move(inner), bucket);
  co_return result;
}

/// Returns the test case of a hook spec. `tolerance` is absolute, for gradients between -1 and 1.
HookCase from_spec(const std::string& name, const std::string& text, double tolerance) {
  return {name, [text](auto group) { return make_hook(text, group); }, true, tolerance};
}

INSTANTIATE_TEST_SUITE_P(
    Compressing, HookContract,
    ::testing::Values(
        from_spec("fp16", "fp16", 0x1p-10), from_spec("bf16", "bf16", 0x1p-7), from_spec("int8", "int8", 0.01),
        from_spec("int4", "int4(block=64)", 0.16), from_spec("per_tensor", "quantize_per_tensor", 0.01),
        from_spec("per_channel", "quantize_per_channel", 0.01),
        from_spec("stochastic", "int8(rounding=stochastic, seed=7, range=symmetric)", 0.04),
        from_spec("feedback", "int8 | error_feedback", 0.02), from_spec("fp16_around", "allreduce | fp16", 0x1p-9),
        from_spec("bf16_around_int8", "int8 | bf16", 0.03),
        from_spec("where", "int8 | where(dims=2, fallback=fp16)", 0.01), from_spec("watched", "allreduce | compare", 0),
        from_spec("powersgd", "powersgd", 0), from_spec("batched_powersgd", "batched_powersgd(rank=2)", 0)),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Hooks, HookContract,
    ::testing::Values(
        HookCase{"allreduce", [](auto group) { return make_hook("allreduce", group); }},
        HookCase{"noop", [](auto group) { return make_hook("noop", group); }, false},
        HookCase{"post_local_sgd", [](auto group) { return make_hook("post_local_sgd(start_iter=4)", group); }},
        HookCase{"local_alone",
                 [](auto group) { return make_hook("post_local_sgd(start_iter=0, group_size=1)", group); }, false},
        HookCase{"coroutine", [](auto group) { return make_hook(mean, group); }},
        HookCase{"typed", [](auto group) { return std::make_shared<TypedHook>(group); }},
        HookCase{"wrapped", [](auto group) { return wrap(make_hook(mean, group), pass_on); }}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
