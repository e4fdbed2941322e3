// Tests functions as hooks: what is refused.
#include <hookline/hook/comm_hook.hpp>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/registry.hpp>

#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

TEST(FunctionHooks, WithoutAFunctionOrAStateAreRefused) {
  Future<Tensor> (*const function)(ProcessGroup&, GradBucket&) = nullptr;
  const auto some = [](ProcessGroup&, GradBucket& bucket) { return Future<Tensor>::ready(bucket.buffer()); };
  const auto shared = alone();
  EXPECT_THROW((void)make_hook(HookFunction()), InvalidArgument);
  EXPECT_THROW((void)make_hook(function, shared), InvalidArgument);
  EXPECT_THROW((void)make_hook(+some, std::shared_ptr<ProcessGroup>()), InvalidArgument);
  EXPECT_THROW((void)wrap(make_hook("noop", shared), nullptr), InvalidArgument);
  EXPECT_THROW((void)wrap(nullptr, [](HookPtr, GradBucket& b) { return Future<Tensor>::ready(b.buffer()); }),
               InvalidArgument);
  EXPECT_EQ(wrap(
                make_hook(+some, shared, {.name = "some"}),
                [](HookPtr inner, GradBucket& b) { return run_and_parse(std::move(inner), b); }, "around")
                ->name(),
            "some | around");
}

}  // namespace
}  // namespace hookline::testing
