// Tests edge cases of a step: launch order, shared lanes, views on one rank only, nested no_sync.
#include <algorithm>
#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/core/executor.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::ElementsAre;

const BucketLimits kOneEach{.first_bucket_bytes = 1, .bucket_bytes = 1};

TEST(ReducerEdgeCases, HookStartsWhenItsBucketAndEarlierOnesAreReady) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    std::vector<std::size_t> started;
    Reducer reducer(model(4), group.shared_from_this(), make_hook([&](GradBucket& bucket) {
                      started.push_back(bucket.index());
                      return Future<Tensor>::ready(bucket.buffer());
                    }),
                    {.limits = kOneEach});
    reducer.mark_ready("p3");
    EXPECT_THAT(started, ElementsAre(0)) << "before the rest of the backward pass";
    reducer.mark_ready("p1");
    EXPECT_THAT(started, ElementsAre(0)) << "bucket 1 is not full";
    reducer.mark_ready("p2");
    EXPECT_THAT(started, ElementsAre(0, 1, 2));
    reducer.mark_ready("p0");
    EXPECT_THAT(started, ElementsAre(0, 1, 2, 3));
    reducer.finalize();
    EXPECT_EQ(started.size(), 4u);
  });
}

TEST(ReducerEdgeCases, StatsReportExposedCommunication) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    std::thread timer;
    const std::chrono::milliseconds delay(20);
    Reducer reducer(model(1), group.shared_from_this(), make_hook([&](GradBucket& bucket) {
                      Promise<Tensor> promise;
                      Future<Tensor> future = promise.get_future();
                      timer = std::thread([promise = std::move(promise), buffer = bucket.buffer(), delay]() mutable {
                        std::this_thread::sleep_for(delay);
                        promise.set_value(buffer);
                      });
                      return future;
                    }));
    reducer.mark_ready(0);
    reducer.finalize();
    timer.join();
    const StepStats stats = reducer.stats();
    EXPECT_GE(stats.total, 0.02);
    EXPECT_GT(stats.exposed_comm, 0);
    EXPECT_NEAR(stats.backward + stats.exposed_comm, stats.total, 1e-9);
    EXPECT_GE(stats.buckets[0].done - stats.buckets[0].launched, 0.02);
  });
}

// Forty buckets share the lanes; each hook runs several consecutive collectives.
TEST(ReducerEdgeCases, MoreBucketsThanLanes) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const auto hook = [](ProcessGroup& g, GradBucket& bucket) -> Future<Tensor> {
      const Tensor sum = bucket.buffer().clone();
      for (int i = 0; i < 3; ++i) {
        const Tensor index = Tensor::full({1}, static_cast<double>(bucket.index()), DType::i64);
        co_await g.broadcast(index);
        if (index.item<std::size_t>() != bucket.index()) throw std::runtime_error("another bucket's collective");
      }
      const AllreduceOptions options{.op = ReduceOp::avg};
      co_await g.allreduce(sum, options);
      co_return sum;
    };
    Reducer reducer(model(40), group.shared_from_this(), make_hook(+hook, group.shared_from_this()),
                    {.limits = kOneEach});
    EXPECT_EQ(reducer.buckets().size(), 40u);
    std::vector<std::size_t> order = reverse_order(40);
    if (group.rank() == 0) std::reverse(order.begin(), order.end());
    for (std::uint64_t s = 1; s <= 5; ++s) step_with_copies(reducer, s, order);
  });
}

// When a step fails, hooks of full buckets that wait for a lane complete first, and none starts afterwards.
TEST(ReducerEdgeCases, FailedStepWaitsForBucketsQueuedOnLanes) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    std::atomic<int> over = 0;
    ThreadExecutor thread("hl-hooks");
    const auto hook = [&](GradBucket& bucket) {
      Promise<Tensor> promise;
      auto future = promise.get_future();
      thread.post([&bucket, &over, promise = std::move(promise)]() mutable {
        ++over;
        promise.set_value(bucket.buffer());
      });
      return future;
    };
    Reducer reducer(model(40), group.shared_from_this(), make_hook(hook, {.may_block = true}), {.limits = kOneEach});
    for (int s = 0; s < 500; ++s) {
      for (std::size_t p = 39; p > 0; --p) reducer.mark_ready(p);
      EXPECT_THROW(reducer.finalize(), InvalidArgument);  // p0 was not marked
      ASSERT_EQ(over.exchange(0), 39);
    }
  });
}

TEST(ReducerEdgeCases, StatsReportBucketsRebuiltUnderNoSync) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(3), group.shared_from_this(), nullptr, {.limits = kOneEach});
    step_with_copies(reducer, 1, {0, 1, 2});
    {
      const auto scope = reducer.no_sync();
      for (std::size_t p = 0; p < 3; ++p) reducer.mark_ready(p, Tensor::zeros(reducer.parameters()[p].tensor.shape()));
    }
    step_with_copies(reducer, 2, reverse_order(3));
    EXPECT_TRUE(reducer.stats().rebuilt);
    step_with_copies(reducer, 3, reverse_order(3));
    EXPECT_FALSE(reducer.stats().rebuilt);
  });
}

TEST(ReducerEdgeCases, RanksMayAccumulateDifferentNumbersOfSteps) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(3), group.shared_from_this(), nullptr, {.limits = kOneEach});
    step_with_copies(reducer, 1, {0, 1, 2});
    if (group.rank() == 0) {
      const auto scope = reducer.no_sync();
      for (std::size_t p = 0; p < 3; ++p) reducer.mark_ready(p, Tensor::zeros(reducer.parameters()[p].tensor.shape()));
    }
    for (std::uint64_t s = 2; s < 4; ++s) step_with_copies(reducer, s, reverse_order(3));
  });
}

TEST(ReducerEdgeCases, SumIsUnscaledDuringJoin) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(1), group.shared_from_this(), nullptr, {.reduction = GradientReduction::sum});
    reducer.join(
        [&] {
          for (int s = 0; s <= group.rank(); ++s) {
            const Tensor gradient = Tensor::full({40, 1}, group.rank() + 1);
            reducer.mark_ready(0, gradient);
            reducer.finalize();
            EXPECT_EQ(gradient.data<float>()[0], s == 0 ? 3 : 2);
          }
        },
        {.divide_by_initial_world_size = false});
  });
}

TEST(ReducerEdgeCases, ViewOnOneRankKeepsBucketsOfAllRanks) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(3), group.shared_from_this(), nullptr, {.limits = kOneEach});
    Tensor view;
    if (group.rank() == 1) view = reducer.gradient("p1");
    for (int s = 0; s < 3; ++s) {
      for (std::size_t p = 0; p < 3; ++p) reducer.mark_ready(p);  // not in bucket order
      reducer.finalize();
    }
    EXPECT_EQ(reducer.buckets()[0], ParameterIndices{2});
  });
}

TEST(ReducerEdgeCases, RejectedSparseGradientLeavesNoRows) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    // The other parameter is in the first bucket, so nothing is sent before the second mark.
    const std::vector<Parameter> parameters = {{"rows", Tensor::zeros({10, 1}), true}, {"first", Tensor::zeros({1})}};
    Reducer reducer(parameters, group.shared_from_this(), nullptr, {.find_unused_parameters = true});
    std::vector<std::int64_t> rows = {3};
    const SparseGradient gradient{Tensor::borrow(rows), Tensor::full({1, 1}, 5)};
    reducer.mark_ready("rows", gradient);
    EXPECT_THROW(reducer.mark_ready("rows", gradient), InvalidArgument);
    reducer.finalize();
    EXPECT_EQ(reducer.sparse_gradient("rows").values.item<float>(), 5.0f);
  });
}

TEST(ReducerEdgeCases, SparseGradientsByPosition) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    const std::vector<Parameter> parameters = {{"dense", Tensor::zeros({1})}, {"rows", Tensor::zeros({10, 1}), true}};
    Reducer reducer(parameters, group.shared_from_this());
    std::vector<std::int64_t> rows = {3};
    reducer.mark_ready(0);
    reducer.mark_ready(1, SparseGradient{Tensor::borrow(rows), Tensor::full({1, 1}, 5)});
    reducer.finalize();
    EXPECT_EQ(reducer.sparse_gradient(1).values.item<float>(), 5.0f);
    EXPECT_THROW((void)reducer.sparse_gradient(0), InvalidArgument) << "a dense parameter";
    EXPECT_THROW((void)reducer.sparse_gradient(2), InvalidArgument) << "out of range";
  });
}

TEST(ReducerEdgeCases, SumsAndWeightsOfSparseGradients) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const std::vector<Parameter> parameters = {{"rows", Tensor::zeros({10, 1}), true}};
    Reducer reducer(parameters, group.shared_from_this(), nullptr, {.reduction = GradientReduction::sum});
    const auto step = [&] {
      std::vector<std::int64_t> rows = {3};
      reducer.mark_ready("rows", SparseGradient{Tensor::borrow(rows), Tensor::full({1, 1}, 4)});
      reducer.finalize();
      return reducer.sparse_gradient("rows").values.item<float>();
    };
    EXPECT_EQ(step(), 8.0f);
    reducer.set_weight(group.rank() == 0 ? 3 : 1);
    EXPECT_EQ(step(), 8.0f) << "world size times sum of w*g divided by sum of w";
  });
}

// Blocking hooks share one lane, so only one of them runs at a time.
TEST(ReducerEdgeCases, BlockingHooksRunOneAtATime) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    std::vector<Promise<Tensor>> promises;
    Reducer reducer(model(3), group.shared_from_this(),
                    make_hook(
                        [&](GradBucket&) {
                          promises.emplace_back();
                          return promises.back().get_future();
                        },
                        {.name = "slow", .may_block = true}),
                    {.limits = kOneEach});
    for (const std::size_t p : {2U, 1U, 0U}) reducer.mark_ready(p);
    for (std::size_t b = 0; b < 3; ++b) {
      EXPECT_EQ(promises.size(), b + 1);
      promises[b].set_value(Tensor::zeros(Dims{40 * static_cast<std::int64_t>(3 - b)}));
    }
    reducer.finalize();
  });
}

TEST(ReducerEdgeCases, NestedNoSyncCountsAsUse) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(2), group.shared_from_this(), nullptr, {.limits = kOneEach, .find_unused_parameters = true});
    {
      const auto outer = reducer.no_sync();
      {
        const auto inner = reducer.no_sync();
        reducer.mark_ready("p0", Tensor::full({40, 1}, 4));
        reducer.finalize();
      }
      reducer.mark_ready("p0", Tensor::full({40, 1}, 2));
      reducer.finalize();
      EXPECT_EQ(reducer.stats().step, 0u) << "no step has completed";
    }
    reducer.finalize();  // without marks
    EXPECT_THAT(reducer.stats().unused, ElementsAre("p1"));
    EXPECT_EQ(reducer.gradient("p0").data<float>()[0], 6.0f);
  });
}

TEST(ReducerEdgeCases, RowsAndViewsWrittenUnderNoSyncCountAsUse) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = model(1);
    parameters.push_back({"rows", Tensor::zeros({10, 1}), true});
    Reducer reducer(parameters, group.shared_from_this(), nullptr, {.find_unused_parameters = true});
    const Tensor view = reducer.gradient("p0");
    std::vector<std::int64_t> rows = {3};
    const Tensor values = Tensor::full({1, 1}, 5);
    {
      const auto guard = reducer.no_sync();
      view.fill(2 + 4 * group.rank());
      reducer.mark_ready("p0");
      reducer.mark_ready("rows", SparseGradient{Tensor::borrow(rows), values});
      reducer.finalize();
    }
    rows[0] = 4;  // the caller may reuse its memory
    values.fill(9);
    reducer.finalize();  // without marks
    EXPECT_THAT(reducer.stats().unused, ElementsAre());
    EXPECT_EQ(view.data<float>()[0], 4.0f) << "the mean of 2 and 6";
    EXPECT_EQ(reducer.sparse_gradient("rows").indices.item<int>(), 3);
    EXPECT_EQ(reducer.sparse_gradient("rows").values.item<float>(), 5.0f);
  });
}

TEST(ReducerEdgeCases, StaleGradientsContributeToTheMean) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    for (const bool contiguous : {true, false}) {
      std::vector<Parameter> parameters = model(3);
      parameters.push_back({"rows", Tensor::zeros({10, 1}), true});
      Reducer reducer(parameters, group.shared_from_this(), nullptr,
                      {.limits = kOneEach, .find_unused_parameters = true});
      const auto gradient = [&](std::size_t p, double value) {
        const Dims& shape = parameters[p].tensor.shape();
        const Tensor t =
            contiguous ? Tensor::empty(shape) : Tensor::empty({2 * shape[0], shape[1]}).slice(0, 0, 2 * shape[0], 2);
        t.fill(value);
        return t;
      };
      const Tensor used = gradient(1, 2), nobodys = gradient(2, 3 + group.rank());
      std::vector<std::int64_t> rows = {3};
      const SparseGradient older{Tensor::borrow(rows), Tensor::full({1, 1}, 6)};
      reducer.mark_ready(0, gradient(0, 1));
      if (group.rank() == 0) reducer.mark_ready(1, used);
      else reducer.mark_unused(1, used);
      reducer.mark_unused(2, nobodys);
      if (group.rank() == 0) reducer.mark_ready(3, older);
      else reducer.mark_unused(3, older);
      reducer.finalize();
      EXPECT_THAT(reducer.stats().unused, ElementsAre("p2"));
      EXPECT_EQ(used.contiguous().data<float>()[5], 2.0f);
      EXPECT_EQ(nobodys.contiguous().data<float>()[5], static_cast<float>(3 + group.rank()));
      EXPECT_EQ(reducer.sparse_gradient("rows").values.item<float>(), 6.0f);

      reducer.mark_ready(0, gradient(0, 1));
      if (group.rank() == 0) reducer.mark_ready(1, used);
      reducer.finalize();
      const Tensor copy = gradient(1, 9);
      reducer.copy_gradient(1, copy);
      EXPECT_EQ(copy.contiguous().data<float>()[5], 1.0f) << "independent of the previous step";
    }
    Reducer reducer(model(1), group.shared_from_this());
    EXPECT_THROW(reducer.mark_unused(0, Tensor::zeros({40, 1})), InvalidArgument);
  });
}

TEST(ReducerEdgeCases, RejectsRepeatedMarksUnderNoSync) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    for (const bool recorded : {true, false}) {
      Reducer reducer(model(1), group.shared_from_this(), nullptr, {.static_graph = true});
      const Tensor sum = Tensor::full({40, 1}, 1);
      if (recorded) {
        for (int part = 0; part < 2; ++part) reducer.mark_ready(0, sum);
        reducer.finalize();
      }
      {
        const auto guard = reducer.no_sync();
        if (recorded) EXPECT_THROW(reducer.mark_ready(0, sum), Unsupported);
        else reducer.mark_ready(0, sum);
      }
      reducer.mark_ready(0, sum);
      if (recorded) reducer.mark_ready(0, sum);
      else EXPECT_THROW(reducer.mark_ready(0, sum), Unsupported);
      reducer.finalize();
      EXPECT_EQ(sum.data<float>()[0], recorded ? 1.0f : 2.0f);
    }
  });
}

}  // namespace
}  // namespace hookline::testing
