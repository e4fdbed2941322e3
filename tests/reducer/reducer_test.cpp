// Tests steps of the reducer: views and copies, bucket order, accumulation, unused and sparse parameters, join.
#include <hookline/reducer/reducer.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/registry.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

const BucketLimits kSmall{.first_bucket_bytes = 500, .bucket_bytes = 1000};

Future<Tensor> two_collectives(ProcessGroup& group, GradBucket& bucket) {
  const Tensor half = bucket.buffer().clone();
  co_await group.allreduce(half);
  co_await group.broadcast(half);
  half *= 1.0 / group.size();
  co_return half;
}

class ReducerSteps : public ::testing::TestWithParam<GroupFixture> {};

TEST_P(ReducerSteps, CopiedGradientsHoldTheMeans) {
  for (const int ranks : {1, 2, 3}) {
    GetParam().spawn(ranks, [](ProcessGroup& group) {
      Reducer reducer(model(11), group.shared_from_this(), nullptr, {.limits = kSmall});
      EXPECT_GT(reducer.buckets().size(), 2u);
      for (std::uint64_t s = 1; s <= 4; ++s) step_with_copies(reducer, s, reverse_order(11));
      const StepStats stats = reducer.stats();
      EXPECT_EQ(stats.step, 4u);
      EXPECT_EQ(stats.hook, "allreduce");
      EXPECT_EQ(stats.buckets.size(), reducer.buckets().size());
      for (const BucketStats& b : stats.buckets) {
        EXPECT_LE(0, b.ready);
        EXPECT_LE(b.ready, b.launched);
        EXPECT_LE(b.launched, b.done);
        EXPECT_EQ(b.bytes_sent,
                  2 * b.bytes * static_cast<std::size_t>(group.size() - 1) / static_cast<std::size_t>(group.size()));
      }
    });
  }
}

TEST_P(ReducerSteps, ViewsKeepTheirMemory) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(9), group.shared_from_this(), make_hook(two_collectives, group.shared_from_this()),
                    {.limits = kSmall});
    std::vector<Tensor> views;
    for (std::size_t p = 0; p < 9; ++p) views.push_back(reducer.gradient(p));
    const std::vector<std::size_t> order = {3, 1, 4, 0, 5, 8, 2, 6, 7};
    for (std::uint64_t s = 1; s <= 3; ++s) {
      for (const std::size_t p : order) {
        views[p].copy_from(gradient_like(reducer.parameters()[p], group.rank(), p, s));
        reducer.mark_ready(p);
      }
      reducer.finalize();
      for (std::size_t p = 0; p < 9; ++p) expect_mean(views[p], 2, p, s);
      EXPECT_FALSE(reducer.stats().rebuilt);
    }
  });
}

TEST_P(ReducerSteps, RebuildsBucketsInRankZeroOrder) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(6), group.shared_from_this(), nullptr,
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    const auto before = reducer.buckets();
    EXPECT_EQ(before[0], ParameterIndices{5});
    const std::vector<std::size_t> rank_0_order = {2, 0, 1, 5, 4, 3};
    step_with_copies(reducer, 1, group.rank() == 0 ? rank_0_order : reverse_order(6));
    step_with_copies(reducer, 2, reverse_order(6));
    EXPECT_TRUE(reducer.stats().rebuilt);
    for (std::size_t b = 0; b < 6; ++b) EXPECT_EQ(reducer.buckets()[b], ParameterIndices{rank_0_order[b]});
    step_with_copies(reducer, 3, rank_0_order);
    EXPECT_FALSE(reducer.stats().rebuilt);
  });
}

TEST_P(ReducerSteps, MixedDtypesStridesAndScalars) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = {{"a", Tensor::zeros({3, 5})},
                                         {"b", Tensor::zeros({7}, DType::f64)},
                                         {"c", Tensor::zeros({}, DType::f32)},
                                         {"d", Tensor::zeros({9}, DType::bf16)},
                                         {"e", Tensor::zeros({0, 4})}};
    Reducer reducer(parameters, group.shared_from_this());
    EXPECT_EQ(reducer.buckets().size(), 3u);
    for (std::uint64_t s = 1; s <= 3; ++s) {
      step_with_copies(reducer, s, reverse_order(5));
      const Tensor wide = Tensor::zeros({3, 10}).slice(1, 0, 10, 2);
      wide.copy_from(gradient_like(parameters[0], group.rank(), 0, s));
      reducer.mark_ready("a", wide);
      for (std::size_t p = 1; p < 5; ++p) {
        const Tensor g = gradient_like(parameters[p], group.rank(), p, s);
        reducer.mark_ready(p, g);
      }
      reducer.finalize();
      expect_mean(wide, 2, 0, s);
    }
  });
}

TEST_P(ReducerSteps, NoSyncAccumulates) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(5), group.shared_from_this(), nullptr, {.limits = kSmall});
    for (int round = 0; round < 3; ++round) {
      const std::uint64_t before = group.sequence_number();
      {
        const auto guard = reducer.no_sync();
        for (int part = 0; part < 2; ++part) {
          for (const std::size_t p : reverse_order(5)) {
            const Tensor g = gradient_like(reducer.parameters()[p], group.rank(), p, 1);
            reducer.mark_ready(p, g);
          }
          reducer.finalize();
        }
      }
      const std::uint64_t sent = group.sequence_number() - before;
      EXPECT_TRUE(sent == 0 || round == 1) << "only the bucket order is sent";
      step_with_copies(reducer, 1, reverse_order(5), 3);
    }
    step_with_copies(reducer, 2, reverse_order(5));
  });
}

TEST_P(ReducerSteps, UnusedParametersAreDetectedAcrossRanks) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(6), group.shared_from_this(), nullptr, {.limits = kSmall, .find_unused_parameters = true});
    reducer.gradient(4).fill(42);
    for (std::uint64_t s = 1; s <= 3; ++s) {
      // No rank uses p4; only rank 0 uses p1.
      std::vector<Tensor> gradients(6);
      for (const std::size_t p : reverse_order(6)) {
        if (p == 4 || (p == 1 && group.rank() == 1)) continue;
        gradients[p] = gradient_like(reducer.parameters()[p], group.rank(), p, s);
        reducer.mark_ready(p, gradients[p]);
      }
      reducer.finalize();
      EXPECT_EQ(reducer.stats().unused, std::vector<std::string>{"p4"});
      for (const std::size_t p : {0U, 2U, 3U, 5U}) expect_mean(gradients[p], 2, p, s);
      EXPECT_NEAR(reducer.gradient(1).data<float>()[3], gradient_of(0, 1, s, 3) / 2, 1e-6);
      EXPECT_EQ(reducer.gradient(4).data<float>()[0], 42.0f) << "untouched";
    }
  });
}

TEST_P(ReducerSteps, StaticGraphIsRecordedInFirstStep) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(6), group.shared_from_this(), nullptr, {.limits = kSmall, .static_graph = true});
    for (std::uint64_t s = 1; s <= 3; ++s) {
      std::vector<Tensor> gradients(6);
      for (const std::size_t p : {0U, 1U, 3U, 4U, 5U}) {
        gradients[p] = gradient_like(reducer.parameters()[p], group.rank(), p, s);
        reducer.mark_ready(p, gradients[p]);
        if (p == 3) reducer.mark_ready(p, gradients[p]);  // used twice in the model
      }
      reducer.finalize();
      for (const std::size_t p : {0U, 1U, 3U, 4U, 5U}) expect_mean(gradients[p], 2, p, s);
      EXPECT_EQ(reducer.stats().unused, std::vector<std::string>{"p2"});
      EXPECT_EQ(reducer.gradient(2).data<float>()[0], s == 1 ? 0.0f : 42.0f) << "untouched";
      reducer.gradient(2).fill(42);
    }
    reducer.mark_ready(0);
    EXPECT_THROW(reducer.mark_ready(0), InvalidArgument);
    EXPECT_THROW(reducer.mark_ready(2), InvalidArgument);
    EXPECT_THROW(reducer.finalize(), InvalidArgument);
  });
}

TEST_P(ReducerSteps, SparseGradientsAreReducedOverTheUnionOfRows) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    for (const char* text : {"allreduce", "coroutine"}) {
      std::vector<Parameter> parameters = model(3);
      parameters.push_back({"rows", Tensor::zeros({1000, 2}), true});
      HookPtr hook = make_hook("allreduce", group.shared_from_this());
      if (std::string(text) != "allreduce") hook = make_hook(two_collectives, group.shared_from_this());
      Reducer reducer(parameters, group.shared_from_this(), hook, {.limits = kSmall});
      for (std::uint64_t s = 1; s <= 4; ++s) {
        // Rank 0 has rows 7, 999 and 7 again, rank 1 has 3 and 7. In the third step rank 1 has none; in the fourth
        // each rank has one.
        std::vector<std::int64_t> rows =
            group.rank() == 0 ? std::vector<std::int64_t>{7, 999, 7} : std::vector<std::int64_t>{3, 7};
        if (s == 3 && group.rank() == 1) rows.clear();
        if (s == 4) rows.resize(1);
        const Tensor values = Tensor::full({static_cast<std::int64_t>(rows.size()), 2}, group.rank() + 1);
        reducer.mark_ready("rows", SparseGradient{Tensor::borrow(rows), values});
        for (const std::size_t p : reverse_order(3)) {
          const Tensor g = gradient_like(parameters[p], group.rank(), p, s);
          reducer.mark_ready(p, g);
        }
        reducer.finalize();
        const SparseGradient mean = reducer.sparse_gradient("rows");
        const std::vector<std::int64_t> indices(mean.indices.data<std::int64_t>(),
                                                mean.indices.data<std::int64_t>() + mean.indices.numel());
        const std::vector<float> first(mean.values.data<float>(), mean.values.data<float>() + mean.values.numel());
        if (s < 3) {
          EXPECT_THAT(indices, ::testing::ElementsAre(3, 7, 999));
          EXPECT_THAT(first, ::testing::ElementsAre(1, 1, 2, 2, 0.5, 0.5));
        } else if (s == 3) {
          EXPECT_THAT(indices, ::testing::ElementsAre(7, 999));
          EXPECT_THAT(first, ::testing::ElementsAre(1, 1, 0.5, 0.5));
        } else {
          EXPECT_THAT(indices, ::testing::ElementsAre(3, 7));
          EXPECT_THAT(first, ::testing::ElementsAre(1, 1, 0.5, 0.5));
        }
        for (const BucketStats& b : reducer.stats().buckets) EXPECT_LT(b.bytes, 2000u) << "not densified";
      }
      std::vector<std::int64_t> outside = {1000};
      EXPECT_THROW(reducer.mark_ready("rows", SparseGradient{Tensor::borrow(outside), Tensor::zeros({1, 2})}),
                   InvalidArgument);
    }
  });
}

TEST_P(ReducerSteps, UnevenInputs) {
  for (const bool initial : {true, false}) {
    GetParam().spawn(3, [&](ProcessGroup& group) {
      std::vector<Parameter> parameters = model(5);
      Reducer reducer(parameters, group.shared_from_this(), make_hook(two_collectives, group.shared_from_this()),
                      {.limits = kSmall});
      const int steps = 1 + 2 * group.rank();
      std::vector<float> seen;
      reducer.join(
          [&] {
            for (int s = 0; s < steps; ++s) {
              const Tensor g = Tensor::full(parameters[0].tensor.shape(), 6);
              for (const std::size_t p : reverse_order(5)) {
                const Tensor other = Tensor::full(parameters[p].tensor.shape(), 6);
                reducer.mark_ready(p, p == 0 ? g : other);
              }
              reducer.finalize();
              seen.push_back(g.data<float>()[0]);
              parameters[0].tensor.fill(s + 1);
            }
          },
          {.divide_by_initial_world_size = initial});
      std::vector<float> expected(static_cast<std::size_t>(steps), 6.0f);
      if (initial) {
        for (std::size_t s = 1; s < expected.size(); ++s) expected[s] = s < 3 ? 4.0f : 2.0f;
      }
      for (std::size_t s = 0; s < seen.size(); ++s) EXPECT_NEAR(seen[s], expected[s], 1e-5) << s;
      EXPECT_EQ(parameters[0].tensor.data<float>()[0], 5.0f) << "parameters of the rank with the most steps";
      step_with_copies(reducer, 1, reverse_order(5));
    });
  }
}

// Rank 0 has no inputs in the step that records the static graph.
TEST_P(ReducerSteps, StaticGraphIsRecordedFromOthersInJoin) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(4), group.shared_from_this(), nullptr, {.limits = kSmall, .static_graph = true});
    const auto steps = [&](int count, double part) {
      for (int s = 0; s < count; ++s) {
        const Tensor g = Tensor::full({40, 1}, 6);
        for (const std::size_t p : {3U, 0U}) {
          reducer.mark_ready(p, p == 0 ? g : Tensor::full({40, 1}, 6));
          if (p == 3) reducer.mark_ready(p);
        }
        reducer.finalize();
        EXPECT_EQ(g.data<float>()[0], 6 * part);
      }
    };
    reducer.join([&] { steps(2 * group.rank(), 0.5); });
    steps(2, 1);
    EXPECT_EQ(reducer.stats().unused, (std::vector<std::string>{"p1", "p2"}));
  });
}

// Under no_sync finalize() does not end a step, so a join would never end.
TEST_P(ReducerSteps, RejectsJoinUnderNoSync) {
  GetParam().spawn(1, [](ProcessGroup& group) {
    Reducer reducer(model(1), group.shared_from_this());
    {
      const auto guard = reducer.no_sync();
      EXPECT_THROW(reducer.begin_join(), InvalidArgument);
    }
    reducer.begin_join();
    {
      const auto guard = reducer.no_sync();
      EXPECT_THROW(reducer.end_join(), InvalidArgument);
    }
    reducer.end_join();
  });
}

TEST_P(ReducerSteps, SumsAndWeights) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer sum(model(3), group.shared_from_this(), nullptr, {.reduction = GradientReduction::sum});
    step_with_copies(sum, 1, reverse_order(3), 2);

    Reducer weighted(model(3), group.shared_from_this());
    weighted.set_weight(group.rank() == 0 ? 3 : 1);
    const Tensor g = Tensor::full({40, 1}, group.rank() == 0 ? 1 : 5);
    weighted.mark_ready("p0", g);
    weighted.mark_ready("p1");
    weighted.mark_ready("p2");
    weighted.finalize();
    EXPECT_NEAR(g.data<float>()[0], (3 * 1 + 1 * 5) / 4.0, 1e-6);
    for (const double bad : {-1.0, std::nan(""), HUGE_VAL}) EXPECT_THROW(weighted.set_weight(bad), InvalidArgument);
    EXPECT_THROW(weighted.set_weight(0), InvalidArgument) << "on all ranks";
  });
}

TEST_P(ReducerSteps, IgnoredAndReduceLastParameters) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = model(4);
    parameters[1].ignored = true;
    parameters[1].tensor.fill(group.rank());
    parameters[3].reduce_last = true;
    Reducer reducer(parameters, group.shared_from_this(), nullptr,
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    EXPECT_THAT(reducer.buckets(),
                ::testing::ElementsAre(ParameterIndices{2}, ParameterIndices{0}, ParameterIndices{3}));
    EXPECT_EQ(parameters[1].tensor.data<float>()[0], static_cast<float>(group.rank())) << "not broadcast";
    EXPECT_THROW(reducer.mark_ready("p1"), InvalidArgument);
    for (std::uint64_t s = 1; s <= 2; ++s) step_with_copies(reducer, s, {3, 2, 0});
  });
}

TEST_P(ReducerSteps, BroadcastsParametersOfRankZero) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const std::vector<Parameter> parameters = model(4);
    for (const Parameter& p : parameters) p.tensor.fill(group.rank() + 1);
    const Reducer reducer(parameters, group.shared_from_this());
    for (const Parameter& p : parameters) EXPECT_EQ(p.tensor.data<float>()[0], 1.0f);
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ReducerSteps, ::testing::Values(threads_fixture(), shm_fixture()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
