// Tests discard_step: steps that are discarded before anything was sent, and repeated.
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/hook/powersgd.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

const BucketLimits kOneEach{.first_bucket_bytes = 1, .bucket_bytes = 1};

TEST(DiscardedSteps, OnlyBeforeAnythingWasSent) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    for (const bool static_graph : {false, true}) {
      Reducer reducer(model(2), group.shared_from_this(), nullptr, {.limits = kOneEach, .static_graph = static_graph});
      reducer.discard_step();  // no step is open
      for (std::uint64_t step = 0; step < 3; ++step) {
        reducer.mark_ready("p0");  // in the second bucket in the first step
        if (step == 0) reducer.discard_step();
        else EXPECT_THROW(reducer.discard_step(), InvalidArgument);
        if (step == 0) reducer.mark_ready("p0");
        reducer.mark_ready("p1");
        reducer.finalize();
      }
    }
  });
}

TEST(DiscardedSteps, AreRepeatedWithRanksThatDidNotDiscard) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const auto state = std::make_shared<PowerSGDState>(group.shared_from_this());
    Reducer reducer(model(2), group.shared_from_this(), std::make_shared<PowerSGDHook>(state), {.limits = kOneEach});
    for (std::uint64_t step = 1; step <= 3; ++step) {
      for (int fails = 0; fails < group.rank(); ++fails) {
        reducer.mark_ready("p0");  // in the second bucket
        reducer.discard_step();
      }
      const Tensor last = Tensor::full(reducer.parameters()[1].tensor.shape(), group.rank());
      reducer.mark_ready(1, last);
      reducer.mark_ready("p0");
      reducer.finalize();
      EXPECT_EQ(last.data<float>()[0], 0.5f);
      EXPECT_EQ(reducer.stats().step, step);
      EXPECT_EQ(state->iter(), step);
    }
  });
}

TEST(DiscardedSteps, AreNotCountedByHooksWithLoadedState) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    const auto state = std::make_shared<PowerSGDState>(group.shared_from_this());
    const auto hook = std::make_shared<PowerSGDHook>(state);
    Reducer reducer(model(2), group.shared_from_this(), hook, {.limits = kOneEach});
    const std::vector<std::byte> saved = save_state(*hook, group);
    for (std::uint64_t step = 1; step <= 2; ++step) {
      step_with_copies(reducer, step, reverse_order(2));
      reducer.mark_ready("p0");  // in the second bucket
      EXPECT_EQ(state->iter(), step) << "a step counts once something was sent";
      if (step == 2) load_state(*hook, group, saved);
      reducer.discard_step();
    }
    step_with_copies(reducer, 3, reverse_order(2));
    EXPECT_EQ(state->iter(), 1u);
  });
}

TEST(DiscardedSteps, RestoreViewsOfUnusedParameters) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(3), group.shared_from_this(), nullptr, {.limits = kOneEach, .static_graph = true});
    const Tensor view = reducer.gradient("p0");
    step_with_copies(reducer, 1, {2, 1});
    view.fill(7);
    reducer.mark_ready("p1");  // nothing is sent before p2
    EXPECT_THROW(reducer.finalize(), InvalidArgument);
    EXPECT_EQ(view.data<float>()[0], 7.0f);
    view.fill(8);
    reducer.mark_ready("p1");
    reducer.discard_step();
    EXPECT_EQ(view.data<float>()[0], 8.0f);
  });
}

}  // namespace
}  // namespace hookline::testing
