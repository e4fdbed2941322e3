// DdpBucketScheduler runs hooks on the buckets of another framework's reducer: order, lanes, errors, replacement.
#include "adapter/ddp_bucket_scheduler.hpp"

#include <future>
#include <mutex>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/decorator.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/post_local_sgd.hpp>
#include <hookline/hook/registry.hpp>

#include "group/rank_threads.hpp"

namespace hookline::adapter {
namespace {

using hookline::testing::make_thread_groups;
using hookline::testing::on_ranks;
using ::testing::HasSubstr;

constexpr std::size_t kBuckets = 12;

GradBucket bucket_of(std::size_t index, double value, std::size_t count = kBuckets) {
  auto layout = std::make_shared<const BucketLayout>(layout_of({{4, 8}}, {}, {"w"}));
  return {index, count, Tensor::full({32}, value), std::move(layout)};
}

/// One step: all buckets, then their results.
std::vector<double> step(DdpBucketScheduler& scheduler, double value) {
  std::vector<std::promise<double>> done(kBuckets);
  for (std::size_t i = 0; i < kBuckets; ++i) {
    scheduler.run(bucket_of(i, value + static_cast<double>(i)),
                  [&done, i](const Tensor& t, const std::exception_ptr& e) {
                    if (e) done[i].set_exception(e);
                    else done[i].set_value(t.slice(0, 31, 32).item<double>());
                  });
  }
  std::vector<std::future<double>> futures;
  for (auto& d : done) futures.push_back(d.get_future());
  for (auto& f : futures) {
    if (f.wait_for(std::chrono::seconds(20)) != std::future_status::ready) throw std::runtime_error("no result");
  }
  std::vector<double> results;
  for (auto& f : futures) results.push_back(f.get());
  return results;
}

// Runs two dependent collectives. If a group matched them in call order, they would sometimes pair with those of
// another bucket.
Future<Tensor> twice(ProcessGroup& group, GradBucket& bucket) {
  const AllreduceOptions average{.op = ReduceOp::avg};
  const WorkPtr first = group.allreduce(bucket.buffer(), average);
  co_await first;
  Tensor index = Tensor::full({1}, static_cast<double>(bucket.index()));
  const WorkPtr second = group.allreduce(index, average);
  co_await second;
  if (index.item<double>() != static_cast<double>(bucket.index())) throw Mismatch("another bucket's collective");
  co_return bucket.buffer();
}

/// A group with a single lane, like a torch group.
class OneLane final : public GroupDecorator {
 public:
  using GroupDecorator::GroupDecorator;
  Capabilities capabilities() const override { return {.lanes = 1}; }
};

TEST(DdpBucketScheduler, MatchesCollectivesByBucket) {
  for (const bool lanes : {true, false}) {
    const auto groups = make_thread_groups(3);
    const auto errors = on_ranks(groups, [&](ProcessGroup& group, int rank) {
      std::shared_ptr<ProcessGroup> used = group.shared_from_this();
      if (!lanes) used = std::make_shared<OneLane>(used);
      const auto hooks = std::make_shared<DdpBucketScheduler>(used, make_hook(twice, used));
      for (int s = 0; s < 20; ++s) {
        const auto results = step(*hooks, rank);
        for (std::size_t i = 0; i < kBuckets; ++i) {
          if (results[i] != 1.0 + static_cast<double>(i)) throw std::runtime_error("a wrong mean");
        }
      }
      if (hooks->stats().step != 20 || hooks->stats().buckets.size() != kBuckets) throw std::runtime_error("stats");
      if (hooks->stats().bytes_sent == 0) throw std::runtime_error("nothing was sent");
    });
    EXPECT_THAT(errors, ::testing::Each("")) << lanes;
  }
}

// One backward pass fills the buckets of two models, in the same order on all ranks. Ranks and hooks have random
// delays.
TEST(DdpBucketScheduler, MatchesCollectivesOfTwoModelsOnOneGroup) {
  for (const bool lanes : {true, false}) {
    const auto errors = on_ranks(make_thread_groups(2), [&](ProcessGroup& group, int rank) {
      std::mt19937 random(std::random_device{}());
      const auto delayed = [&group, seed = static_cast<unsigned>(random())](GradBucket& bucket) -> Future<Tensor> {
        std::mt19937 own(seed + static_cast<unsigned>(bucket.index()));
        if (own() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(own() % 300));
        return twice(group, bucket);
      };
      std::vector<std::shared_ptr<DdpBucketScheduler>> models;
      for (int m = 0; m < 2; ++m) {
        std::shared_ptr<ProcessGroup> used = group.shared_from_this();
        if (!lanes) used = std::make_shared<OneLane>(used);
        models.push_back(std::make_shared<DdpBucketScheduler>(used, make_hook(delayed)));
      }
      for (int s = 0; s < 30; ++s) {
        std::vector<std::promise<double>> done(2 * kBuckets);
        for (std::size_t i = 0; i < 2 * kBuckets; ++i) {
          const double value = rank + static_cast<double>(i);
          models[i % 2]->run(bucket_of(i / 2, value), [&done, i](const Tensor& t, const std::exception_ptr& e) {
            if (e) done[i].set_exception(e);
            else done[i].set_value(t.slice(0, 31, 32).item<double>());
          });
          if (random() % 8 == 0) std::this_thread::yield();
        }
        for (std::size_t i = 0; i < 2 * kBuckets; ++i) {
          if (done[i].get_future().get() != 0.5 + static_cast<double>(i)) throw std::runtime_error("a wrong mean");
        }
      }
    });
    EXPECT_THAT(errors, ::testing::Each("")) << lanes;
  }
}

TEST(DdpBucketScheduler, HookGetsTheSparseRowsOfAllRanks) {
  const auto groups = make_thread_groups(2);
  const auto errors = on_ranks(groups, [&](ProcessGroup& group, int rank) {
    const auto used = group.shared_from_this();
    const auto hooks = std::make_shared<DdpBucketScheduler>(used, make_hook("allreduce", used));
    for (const std::int64_t own : {std::int64_t{1}, std::int64_t{0}}) {  // with a row on each rank, then with none
      std::vector<std::int64_t> rows(static_cast<std::size_t>(own), rank + 3);
      const Tensor values = Tensor::full({own, 2}, rank + 1.0);
      std::promise<SparseGradient> done;
      hooks->run_sparse(0, 1, {Tensor::borrow(rows).clone(), values}, Tensor::zeros({9, 2}),
                        [&](const SparseGradient& reduced, const std::exception_ptr& error) {
                          if (error) done.set_exception(error);
                          else done.set_value(reduced);
                        });
      auto future = done.get_future();
      if (future.wait_for(std::chrono::seconds(20)) != std::future_status::ready) throw std::runtime_error("no result");
      const SparseGradient reduced = future.get();
      if (reduced.indices.numel() != 2 * own || reduced.values.numel() != 4 * own) throw std::runtime_error("rows");
      if (own == 0) continue;
      const auto* const mean = reduced.values.data<const float>();
      if (reduced.indices.data<const std::int64_t>()[1] != 4 || mean[0] != 0.5F || mean[3] != 1.0F) {
        throw std::runtime_error("a wrong mean");
      }
    }
  });
  EXPECT_THAT(errors, ::testing::Each(""));
}

TEST(DdpBucketScheduler, RunsHooksOfALaneInBucketOrder) {
  const auto groups = make_thread_groups(1);
  const auto group = std::make_shared<OneLane>(groups[0]);
  std::mutex mutex;
  std::vector<std::size_t> order;
  std::vector<Promise<Tensor>> pending;
  const auto hook = make_hook([&](GradBucket& bucket) {
    const std::lock_guard lock(mutex);
    order.push_back(bucket.index());
    return pending.emplace_back().get_future();
  });
  const auto lanes = std::make_shared<DdpBucketScheduler>(group, hook);
  int done = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    lanes->run(bucket_of(i, 0, 3), [&](const Tensor&, const std::exception_ptr& e) { done += e ? 100 : 1; });
  }
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(order.size(), i + 1);
    Promise<Tensor> now = std::move(pending.back());
    now.set_value(Tensor::zeros({32}));
  }
  EXPECT_EQ(done, 3);
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2}));
}

TEST(DdpBucketScheduler, StartsBucketsInOrderAcrossLanes) {
  const auto groups = make_thread_groups(1);
  const auto others = static_cast<std::size_t>(groups[0]->capabilities().lanes - 1);
  ASSERT_GE(others, 2U);
  std::size_t started = 0;
  std::vector<Promise<Tensor>> pending;
  const auto hook = make_hook([&](GradBucket& bucket) {
    ++started;
    if (bucket.index() > 0) return Future<Tensor>::ready(bucket.buffer());
    return pending.emplace_back().get_future();
  });
  const auto lanes = std::make_shared<DdpBucketScheduler>(groups[0], hook);
  const std::size_t count = 2 * others;
  std::size_t done = 0;
  for (std::size_t i = 0; i < count; ++i) {
    lanes->run(bucket_of(i, 0, count), [&](const Tensor&, const std::exception_ptr& e) { done += e ? 100 : 1; });
  }
  EXPECT_EQ(started, others);  // the next bucket waits for the lane of bucket 0, and blocks all later ones
  pending[0].set_value(Tensor::zeros({32}));
  EXPECT_EQ(started, count);
  EXPECT_EQ(done, count);
}

TEST(DdpBucketScheduler, HookErrorFailsAllRanksAndLaterBuckets) {
  const auto groups = make_thread_groups(2);
  const auto errors = on_ranks(groups, [&](ProcessGroup& group, int rank) {
    const auto used = group.shared_from_this();
    const auto fails = make_hook([](GradBucket&) -> Future<Tensor> { throw InvalidArgument("no good"); });
    const auto lanes = std::make_shared<DdpBucketScheduler>(used, rank == 0 ? fails : make_hook(twice, used));
    try {
      step(*lanes, 1);
    } catch (const Error&) {
      step(*lanes, 1);
    }
  });
  EXPECT_THAT(errors[0], HasSubstr("no good"));
  EXPECT_THAT(errors[1], HasSubstr("no good"));
}

TEST(DdpBucketScheduler, HookErrorAbortsTheSubgroupsOfTheHook) {
  const auto errors = on_ranks(make_thread_groups(2), [](ProcessGroup& group, int rank) {
    const auto whole = group.shared_from_this();
    const auto state = std::make_shared<PostLocalSGDState>(whole, whole->new_group({0, 1}), 0);
    const auto fails = [&](const HookPtr& inner, GradBucket& bucket) -> Future<Tensor> {
      if (rank == 0) throw InvalidArgument("no good");
      return run_and_parse(inner, bucket);
    };
    const auto hook = wrap(std::make_shared<PostLocalSGDHook>(state), fails);
    step(*std::make_shared<DdpBucketScheduler>(whole, hook), 1);
  });
  EXPECT_THAT(errors[0], HasSubstr("no good"));
  EXPECT_THAT(errors[1], HasSubstr("no good"));
}

TEST(DdpBucketScheduler, CallsBeginStepAndEndStep) {
  class Counting final : public CommHookInterface {
   public:
    Future<HookResult> run_hook(GradBucket& bucket) override {
      EXPECT_EQ(begun, ended + 1);
      return Future<HookResult>::ready(bucket.buffer());
    }
    Tensor parse_hook_result(const HookResult& result) override { return tensor_of(result); }
    void begin_step(const HookStep&) override { ++begun; }
    void end_step(const HookStep&) override { ++ended; }
    int begun = 0, ended = 0;
  };
  const auto groups = make_thread_groups(1);
  const auto hook = std::make_shared<Counting>();
  const auto lanes = std::make_shared<DdpBucketScheduler>(groups[0], hook);
  for (int s = 0; s < 3; ++s) step(*lanes, 0);
  EXPECT_EQ(hook->begun, 3);
  EXPECT_EQ(hook->ended, 3);
  EXPECT_EQ(lanes->stats().bytes_sent, 0U);
}

TEST(DdpBucketScheduler, RejectsMismatchedResults) {
  const auto groups = make_thread_groups(1);
  for (const Tensor& wrong : {Tensor::zeros({31}), Tensor::zeros({4, 8}), Tensor::zeros({32}, DType::f16)}) {
    const auto hook = make_hook([&](GradBucket&) { return Future<Tensor>::ready(wrong); });
    const auto lanes = std::make_shared<DdpBucketScheduler>(groups[0], hook);
    std::exception_ptr error;
    lanes->run(bucket_of(0, 0, 1), [&](const Tensor&, const std::exception_ptr& e) { error = e; });
    ASSERT_TRUE(error);
    EXPECT_THAT(describe(error), HasSubstr("invalid hook result: expected float32[32], got " + to_string(wrong)));
  }
}

TEST(DdpBucketScheduler, ReplacesTheHookOnlyBetweenSteps) {
  const auto groups = make_thread_groups(1);
  const auto lanes = std::make_shared<DdpBucketScheduler>(groups[0], std::make_shared<NoopHook>());
  const auto ignore = [](const Tensor&, const std::exception_ptr&) {};
  lanes->run(bucket_of(0, 0, 2), ignore);
  EXPECT_THROW(lanes->replace_hook(make_hook("allreduce", groups[0])), InvalidArgument);
  lanes->run(bucket_of(1, 0, 2), ignore);
  lanes->replace_hook(make_hook("allreduce", groups[0]));
  EXPECT_EQ(lanes->hook()->name(), "allreduce");
  EXPECT_THROW(lanes->replace_hook(nullptr), InvalidArgument);
  EXPECT_THROW(std::make_shared<DdpBucketScheduler>(groups[0], nullptr), InvalidArgument);
}

}  // namespace
}  // namespace hookline::adapter
