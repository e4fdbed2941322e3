// Tests post-local SGD: the group over which buckets are averaged in each step.
#include <hookline/hook/post_local_sgd.hpp>

#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/group/subgroups.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/hook/registry.hpp>

#include "group/rank_threads.hpp"
#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;

/// Runs a step of concurrent buckets whose values are rank + 1, and returns the result of each.
std::vector<float> step(CommHookInterface& hook, int rank, std::size_t buckets = 3) {
  std::vector<GradBucket> all;
  std::vector<Future<HookResult>> futures;
  for (std::size_t b = 0; b < buckets; ++b) {
    auto layout = std::make_shared<const BucketLayout>(layout_of({Dims{100}}));
    all.emplace_back(b, buckets, Tensor::full({100}, rank + 1), std::move(layout));
  }
  for (std::size_t b = 0; b < buckets; ++b) {
    const ContextScope scope({.lane = 1 + static_cast<int>(b)});
    futures.push_back(hook.run_hook(all[b]));
  }
  std::vector<float> means;
  for (auto& future : futures) {
    means.push_back(hook.parse_hook_result(future.wait(Milliseconds(20'000))).data<const float>()[99]);
  }
  return means;
}

void require_all(const std::vector<float>& means, float wanted, int number) {
  for (const float mean : means) {
    if (mean != wanted) {
      throw std::runtime_error("step " + std::to_string(number) + " gives " + std::to_string(mean) + ", not " +
                               std::to_string(wanted));
    }
  }
}

TEST(PostLocalSGDHook, AveragesOverAllThenOverSubgroup) {
  for (const GroupFixture& world : {threads_fixture(), shm_fixture()}) {
    world.spawn(4, [](ProcessGroup& group) {
      const HookPtr hook = make_hook("post_local_sgd(start_iter=2, group_size=2)", group.shared_from_this());
      for (int s = 0; s < 5; ++s) {
        const float pair = group.rank() < 2 ? 1.5f : 3.5f;
        require_all(step(*hook, group.rank()), s < 2 ? 2.5f : pair, s);
      }
    });
  }
}

TEST(PostLocalSGDHook, DefaultsToLocalGroup) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const HookPtr hook = make_hook("post_local_sgd(start_iter=1)", group.shared_from_this());
    for (int s = 0; s < 3; ++s) require_all(step(*hook, group.rank()), 1.5f, s);
    if (local_group(group.shared_from_this()).get() != &group) throw std::runtime_error("all ranks are on this host");
  });
}

TEST(PostLocalSGDHook, SendsNothingWithoutGradientAllreduce) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const HookPtr hook = make_hook("post_local_sgd(start_iter=1, gradient_allreduce=false)", group.shared_from_this());
    require_all(step(*hook, group.rank()), 1.5f, 0);
    const std::uint64_t before = group.sequence_number();
    for (int s = 1; s < 3; ++s) require_all(step(*hook, group.rank()), static_cast<float>(group.rank() + 1), s);
    if (group.sequence_number() != before) throw std::runtime_error("operations were started");
  });
}

// Later buckets may overtake a sparse one, which first waits for its row union.
TEST(PostLocalSGDHook, BucketsOfAStepMayRunInAnyOrder) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const HookPtr hook = make_hook("post_local_sgd(start_iter=1, gradient_allreduce=false)", group.shared_from_this());
    const auto layout = std::make_shared<const BucketLayout>(layout_of({Dims{100}}));
    for (int s = 0; s < 2; ++s) {
      hook->begin_step({});
      for (const std::size_t b : {1u, 0u}) {
        GradBucket bucket(b, 2, Tensor::full({100}, group.rank() + 1), layout);
        const Tensor mean = hook->parse_hook_result(hook->run_hook(bucket).wait(Milliseconds(20'000)));
        require_all({mean.data<const float>()[0]}, s == 0 ? 1.5f : static_cast<float>(group.rank() + 1), s);
      }
      hook->end_step({});
    }
  });
}

TEST(PostLocalSGDHook, ResumesFromSavedIteration) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const char* const text = "post_local_sgd(start_iter=3, group_size=1)";
    const HookPtr hook = make_hook(text, group.shared_from_this());
    for (int s = 0; s < 2; ++s) require_all(step(*hook, group.rank()), 1.5f, s);
    const HookPtr resumed = make_hook(text, group.shared_from_this());
    load_state(*resumed, group, save_state(*hook, group));
    require_all(step(*resumed, group.rank()), 1.5f, 2);
    require_all(step(*resumed, group.rank()), static_cast<float>(group.rank() + 1), 3);
  });
}

TEST(PostLocalSGDHook, RejectsInvalidArguments) {
  const Groups groups = make_thread_groups(2);
  const auto message = [&](const char* text) -> std::string {
    try {
      (void)make_hook(text, groups[0]);
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  EXPECT_THAT(message("post_local_sgd(start_iter=-1)"),
              HasSubstr("start_localSGD_iter: expected at least 0 steps, got -1"));
  EXPECT_THAT(message("post_local_sgd(group_size=3)"), HasSubstr("a size that divides the 2 ranks"));
  EXPECT_THAT(message("post_local_sgd(group_size=-2)"), HasSubstr("a size that divides the 2 ranks"));
  EXPECT_THAT(message("post_local_sgd(start=1)"), HasSubstr("no option start; it has: start_iter, group_size"));
  EXPECT_THROW(PostLocalSGDState(nullptr, nullptr, 1), InvalidArgument);
  EXPECT_THROW(PostLocalSGDHook(nullptr), InvalidArgument);
}

}  // namespace
}  // namespace hookline::testing
