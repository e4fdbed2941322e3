// Tests several reducers on one group: one backward pass marks the gradients of all, with random delays of ranks and
// hooks.
// Prints a failing seed; HOOKLINE_SEED=n replays it, HOOKLINE_SEEDS=n sets the number of seeds.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/executor.hpp>
#include <hookline/group/decorator.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/reducer/reducer.hpp>

#include "group/rank_threads.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using Random = std::mt19937;

int below(Random& random, int limit) { return static_cast<int>(random() % static_cast<unsigned>(limit)); }

void delay(Random& random) {
  const int kind = below(random, 12);
  if (kind == 0) std::this_thread::sleep_for(std::chrono::microseconds(below(random, 500)));
  else if (kind < 4) std::this_thread::yield();
}

/// A group with a single lane. Each reducer gets its own wrapper, because each conversion of a torch group makes one.
class OneLane final : public GroupDecorator {
 public:
  using GroupDecorator::GroupDecorator;
  Capabilities capabilities() const override { return {.lanes = 1}; }
};

Future<Tensor> two_collectives(ProcessGroup& group, GradBucket& bucket) {
  Tensor copy = bucket.buffer().clone();
  const AllreduceOptions average{.op = ReduceOp::avg};
  co_await group.allreduce(copy, average);
  co_await group.broadcast(copy);
  co_return copy;
}

HookPtr hook_of(int kind, const std::shared_ptr<ProcessGroup>& group, const std::shared_ptr<ThreadExecutor>& later,
                unsigned seed) {
  switch (kind) {
    case 0: return nullptr;
    case 1: return make_hook(two_collectives, group);
    case 2:
      return make_hook(
          [group, random = std::make_shared<Random>(seed)](GradBucket& bucket) {
            delay(*random);
            group->allreduce(bucket.buffer(), {.op = ReduceOp::avg})->wait();
            return Future<Tensor>::ready(bucket.buffer());
          },
          {.name = "blocking", .may_block = true});
    default:
      return make_hook(
          [group, later, random = std::make_shared<Random>(seed)](GradBucket& bucket) {
            const WorkPtr work = group->allreduce(bucket.buffer(), {.op = ReduceOp::avg});
            Promise<Tensor> promise;
            Future<Tensor> future = promise.get_future();
            later->post([promise = std::move(promise), work, random, buffer = bucket.buffer()]() mutable {
              promise.set_from([&] {
                delay(*random);
                work->wait();
                return buffer;
              });
            });
            return future;
          },
          {.name = "later"});
  }
}

/// One rank of a random case. `shared` makes the same choices on all ranks.
class Rank {
 public:
  Rank(unsigned seed, ProcessGroup& group)
      : shared_(seed), own_(seed * 31 + static_cast<unsigned>(group.rank())), group_(group.shared_from_this()) {
    const bool one_lane = below(shared_, 2) == 0;
    const int count = 2 + below(shared_, 2);
    for (int m = 0; m < count; ++m) {
      const std::shared_ptr<ProcessGroup> used = one_lane ? std::make_shared<OneLane>(group_) : group_;
      // All parameters have the same size, so that a swap of collectives would not be detected.
      const ReducerOptions options{.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1},
                                   .find_unused_parameters = below(shared_, 3) == 0,
                                   .static_graph = false};
      Model& model = models_.emplace_back();
      for (int p = 1 + below(shared_, 9); p > 0; --p) {
        model.parameters.push_back({"p" + std::to_string(p), Tensor::zeros({24})});
      }
      const int kind = below(shared_, 4);
      model.reducer = std::make_unique<Reducer>(model.parameters, used,
                                                hook_of(kind, used, later_, static_cast<unsigned>(own_())), options);
    }
  }

  void run() {
    const int steps = 4 + below(shared_, 4);
    for (int step = 1; step <= steps; ++step) {
      std::vector<std::pair<std::size_t, std::size_t>> order;  // model and parameter
      for (std::size_t m = 0; m < models_.size(); ++m) {
        models_[m].gradients.assign(models_[m].parameters.size(), Tensor());
        for (std::size_t p = 0; p < models_[m].parameters.size(); ++p) order.emplace_back(m, p);
      }
      std::shuffle(order.begin(), order.end(), shared_);
      for (const auto& [m, p] : order) {
        delay(own_);
        Model& model = models_[m];
        model.gradients[p] = gradient_like(model.parameters[p], group_->rank(), p + 100 * m, number(step));
        model.reducer->mark_ready(p, model.gradients[p]);
      }
      std::vector<std::size_t> ends(models_.size());
      std::iota(ends.begin(), ends.end(), std::size_t{0});
      std::shuffle(ends.begin(), ends.end(), shared_);
      for (const std::size_t m : ends) {
        delay(own_);
        models_[m].reducer->finalize();
      }
      for (std::size_t m = 0; m < models_.size(); ++m) {
        for (std::size_t p = 0; p < models_[m].gradients.size(); ++p) {
          expect_mean(models_[m].gradients[p], group_->size(), p + 100 * m, number(step));
        }
      }
    }
  }

 private:
  struct Model {
    std::vector<Parameter> parameters;
    std::vector<Tensor> gradients;
    std::unique_ptr<Reducer> reducer;
  };
  static std::uint64_t number(int step) { return static_cast<std::uint64_t>(step); }

  Random shared_, own_;
  std::shared_ptr<ThreadExecutor> later_ = std::make_shared<ThreadExecutor>("later");
  std::shared_ptr<ProcessGroup> group_;
  std::vector<Model> models_;
};

TEST(SharedGroup, GradientsOfSeveralModelsInOneBackwardPass) {
  const char* const one = std::getenv("HOOKLINE_SEED");
  const char* const many = std::getenv("HOOKLINE_SEEDS");
  const unsigned count = many ? static_cast<unsigned>(std::atoi(many)) : 60;
  const unsigned first = one ? static_cast<unsigned>(std::atoll(one)) : std::random_device{}() >> 8;
  for (unsigned seed = first; seed < first + (one ? 1 : count); ++seed) {
    const auto groups = make_thread_groups(2 + static_cast<int>(seed % 2));
    ASSERT_THAT(on_ranks(groups, [&](ProcessGroup& group, int) { Rank(seed, group).run(); }), Each(""))
        << "HOOKLINE_SEED=" << seed;
  }
}

ReducerOptions one_bucket_each() { return {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}}; }

void mark_all(Reducer& reducer) {
  for (std::size_t p = 0; p < reducer.parameters().size(); ++p) reducer.mark_ready(p);
}

TEST(SharedGroup, AHookErrorOfOneModelEndsTheOther) {
  const auto errors = on_ranks(make_thread_groups(2), [](ProcessGroup& group, int rank) {
    const auto used = group.shared_from_this();
    const auto fails = make_hook([&group, rank](GradBucket& bucket) -> Future<Tensor> {
      if (rank == 0 && bucket.index() == 1) throw InvalidArgument("no good");
      return two_collectives(group, bucket);
    });
    Reducer first(model(6), used, fails, one_bucket_each());
    Reducer second(model(6), used, make_hook(two_collectives, used), one_bucket_each());
    mark_all(first);
    mark_all(second);
    EXPECT_THROW(first.finalize(), Error);
    second.finalize();
  });
  EXPECT_THAT(errors, Each(HasSubstr("no good")));
}

// The failing model is finalized first or last.
TEST(SharedGroup, AHookThatNeverCompletesDoesNotBlockTheOtherModel) {
  for (const bool stuck_first : {true, false}) {
    std::vector<Promise<Tensor>> kept(2);
    const auto groups = make_thread_groups(2, Milliseconds(700));
    const auto errors = on_ranks(groups, [&](ProcessGroup& group, int rank) {
      const auto used = group.shared_from_this();
      const auto stuck =
          make_hook([&kept, rank](GradBucket&) { return kept[static_cast<std::size_t>(rank)].get_future(); });
      Reducer first(model(1), used, stuck, one_bucket_each());
      Reducer second(model(2), used, make_hook(two_collectives, used), one_bucket_each());
      mark_all(first);
      mark_all(second);
      const auto finalize_stuck = [&] {
        EXPECT_THAT(message_of<Error>([&] { first.finalize(); }),
                    ::testing::AnyOf(HasSubstr("did not complete"), HasSubstr("cannot start")));
      };
      if (stuck_first) finalize_stuck();
      const std::string message = message_of<Error>([&] { second.finalize(); });
      EXPECT_THAT(message, ::testing::AnyOf(HasSubstr("did not complete"), HasSubstr("cannot start")));
      if (!stuck_first) finalize_stuck();
    });
    EXPECT_THAT(errors, Each("")) << stuck_first;
    for (Promise<Tensor>& promise : kept) promise.set_value(Tensor::zeros({40}));
  }
}

// The other model's buckets wait in the queue for a lane that the destroyed reducer's hook occupies.
TEST(SharedGroup, AReducerMayBeDestroyedInsideAStep) {
  auto groups = make_thread_groups(1);
  std::weak_ptr<ProcessGroup> observer = groups[0];
  Promise<Tensor> promise;
  {
    auto first = std::make_unique<Reducer>(
        model(1), groups[0], make_hook([&](GradBucket&) { return promise.get_future(); }), one_bucket_each());
    Reducer second(model(9), groups[0], make_hook(two_collectives, groups[0]), one_bucket_each());
    auto third =
        std::make_unique<Reducer>(model(9), groups[0], make_hook(two_collectives, groups[0]), one_bucket_each());
    mark_all(*first);
    mark_all(*third);
    mark_all(second);
    first.reset();
    third.reset();
    std::thread completes([&] {
      std::this_thread::yield();
      promise.set_value(Tensor::zeros({40}));
    });
    second.finalize();
    completes.join();
  }
  groups.clear();
  EXPECT_TRUE(observer.expired() || [&] {
    for (int i = 0; i < 2000 && !observer.expired(); ++i) std::this_thread::sleep_for(Milliseconds(5));
    return observer.expired();
  }());
}

}  // namespace
}  // namespace hookline::testing
