// Tests GradientReduction::sum: gradients are summed unscaled, so nothing overflows unless the sum does.
#include <cmath>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/optimizer/optimizer.hpp>
#include <hookline/optimizer/overlap.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kHooks[] = {"", "allreduce | compare", "fp16", "int8", "int8 | error_feedback"};

HookPtr hook_of(const std::string& text, ProcessGroup& group) {
  return text.empty() ? nullptr : make_hook(text, group.shared_from_this());
}

/// Runs one step of one parameter whose gradient is `value`. Returns the first element of the result.
double step(Reducer& reducer, double value) {
  const Parameter& p = reducer.parameters()[0];
  const Tensor gradient = Tensor::full(p.tensor.shape(), value, p.tensor.dtype());
  reducer.mark_ready(0, gradient);
  reducer.finalize();
  return gradient.slice(0, 0, 1).item<double>();
}

TEST(GradientSums, Float16OverflowsOnlyIfTheSumDoes) {
  for (const char* text : kHooks) {
    threads_fixture().spawn(8, [&](ProcessGroup& group) {
      Reducer reducer({{"w", Tensor::zeros({8}, DType::f16)}}, group.shared_from_this(), hook_of(text, group),
                      {.reduction = GradientReduction::sum});
      // 8 ranks: times 8 each would be above 65504, the largest float16.
      EXPECT_EQ(step(reducer, group.rank() == 0 ? 32768 : 0), 32768) << text;
      EXPECT_EQ(step(reducer, 4096), 32768) << text;
    });
    threads_fixture().spawn(2, [&](ProcessGroup& group) {
      Reducer reducer({{"w", Tensor::zeros({8}, DType::f16)}}, group.shared_from_this(), hook_of(text, group),
                      {.reduction = GradientReduction::sum});
      EXPECT_EQ(step(reducer, group.rank() == 0 ? 40000 : -40000), 0) << text;
    });
  }
}

TEST(GradientSums, SixtyFourRanks) {
  threads_fixture().spawn(64, [](ProcessGroup& group) {
    Reducer reducer({{"w", Tensor::zeros({8}, DType::f16)}}, group.shared_from_this(), nullptr,
                    {.reduction = GradientReduction::sum});
    EXPECT_EQ(step(reducer, group.rank() == 5 ? 2048 : 0), 2048);
  });
}

TEST(GradientSums, IntegersAreExact) {
  for (const DType dtype : {DType::i8, DType::i16, DType::i32, DType::i64}) {
    threads_fixture().spawn(3, [&](ProcessGroup& group) {
      Reducer reducer({{"w", Tensor::zeros({8}, dtype)}}, group.shared_from_this(), nullptr,
                      {.reduction = GradientReduction::sum});
      EXPECT_EQ(step(reducer, group.rank() == 0 ? 101 : -1), 99) << name(dtype);
    });
  }
}

TEST(GradientSums, RejectsIntegersWithAveragingHooks) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const std::vector<Parameter> parameters = {{"float", Tensor::zeros({2})},
                                               {"whole", Tensor::zeros({8}, DType::i32)}};
    const auto make = [&](HookPtr hook, ReducerOptions options) {
      return std::make_unique<Reducer>(parameters, group.shared_from_this(), std::move(hook), options);
    };
    const auto text = message_of<InvalidArgument>([&] {
      make(make_hook("allreduce | compare", group.shared_from_this()), {.reduction = GradientReduction::sum});
    });
    EXPECT_THAT(text, AllOf(HasSubstr("'whole'"), HasSubstr("int32"), HasSubstr("allreduce")));
    const auto sums = make(nullptr, {.reduction = GradientReduction::sum});
    EXPECT_THROW(sums->replace_hook(make_hook("noop", group.shared_from_this())), InvalidArgument);
    EXPECT_THROW(sums->set_weight(2), InvalidArgument) << "weighted integers are not integers";
    sums->join([] {}, {.divide_by_initial_world_size = false});
    const auto means = make(nullptr, {});
    EXPECT_THROW(means->begin_join({.divide_by_initial_world_size = false}), InvalidArgument);
    means->join([] {});
  });
}

TEST(GradientSums, CustomHooks) {
  threads_fixture().spawn(4, [](ProcessGroup& group) {
    double seen = 0;
    const HookPtr mean = make_hook([&](GradBucket& bucket) {
      seen = bucket.buffer().slice(0, 0, 1).item<double>();
      const Tensor result = bucket.buffer().clone();
      const AllreduceOptions options{.op = ReduceOp::avg};
      return group.allreduce(result, options)->get_future().then([result](const Future<std::vector<Tensor>>&) {
        return result;
      });
    });
    Reducer reducer({{"w", Tensor::zeros({8}, DType::f16)}}, group.shared_from_this(), mean,
                    {.reduction = GradientReduction::sum});
    EXPECT_EQ(step(reducer, 10000), 40000);
    EXPECT_EQ(seen, 10000) << "the hook gets the unscaled gradient";
  });
}

TEST(GradientSums, SparseRows) {
  for (const char* text : {"", "allreduce | compare"}) {
    threads_fixture().spawn(4, [&](ProcessGroup& group) {
      Reducer reducer({{"rows", Tensor::zeros({10, 1}, DType::f16), true}}, group.shared_from_this(),
                      hook_of(text, group), {.reduction = GradientReduction::sum});
      for (int s = 0; s < 2; ++s) {
        std::vector<std::int64_t> rows = {3};
        reducer.mark_ready(
            "rows", SparseGradient{Tensor::borrow(rows), Tensor::full({1, 1}, group.rank() ? 0 : 40000, DType::f16)});
        reducer.finalize();
        EXPECT_EQ(reducer.sparse_gradient("rows").values.item<double>(), 40000) << text;
      }
    });
  }
}

TEST(GradientSums, OptimizersStepBySums) {
  for (const bool clips : {false, true}) {
    threads_fixture().spawn(2, [&](ProcessGroup& group) {
      const Tensor w = Tensor::zeros({1});
      const OverlapOptions options{.clip_norm = clips ? std::optional(3.0) : std::nullopt};
      const HookPtr hook =
          overlap(make_hook("allreduce", group.shared_from_this()), make_optimizer("sgd(lr=1)"), options);
      Reducer reducer({{"w", w}}, group.shared_from_this(), hook, {.reduction = GradientReduction::sum});
      EXPECT_EQ(step(reducer, 2), 4);
      EXPECT_NEAR(w.item<double>(), clips ? -3 : -4, 1e-5);
      double received = 0;
      reducer.replace_hook(overlap(
          make_hook("allreduce", group.shared_from_this()),
          [&](const GradBucket& bucket) {
            received = bucket.buffer().item<double>();
            return Future<void>::ready();
          },
          "mine", options));
      EXPECT_EQ(step(reducer, 2), 4);
      EXPECT_NEAR(received, clips ? 3 : 4, 1e-5);
    });
  }
}

TEST(GradientSums, WeightsAndJoinsDoNotOverflow) {
  for (const char* text : {"", "allreduce | compare"}) {
    threads_fixture().spawn(4, [&](ProcessGroup& group) {
      Reducer reducer({{"w", Tensor::zeros({8}, DType::f16)}}, group.shared_from_this(), hook_of(text, group));
      reducer.set_weight(group.rank() == 0 ? 8 : 0);
      EXPECT_EQ(step(reducer, group.rank() == 0 ? 40000 : 1), 40000) << text;
      reducer.set_weight(1);
      reducer.join(
          [&] {
            if (group.rank() != 0) return;
            EXPECT_EQ(step(reducer, 40000), 40000) << text;
          },
          {.divide_by_initial_world_size = false});
    });
  }
}

}  // namespace
}  // namespace hookline::testing
