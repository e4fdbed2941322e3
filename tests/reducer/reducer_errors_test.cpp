// Tests errors in a step: missing and repeated marks, invalid hooks, ranks in different steps.
#include <future>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/core/interrupt.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/post_local_sgd.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/hook/wrappers.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/interrupted_group.hpp"
#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

void step(Reducer& reducer) {
  for (std::size_t p = reducer.parameters().size(); p-- > 0;) reducer.mark_ready(p);
  reducer.finalize();
}

class ReducerErrors : public ::testing::TestWithParam<GroupFixture> {};

TEST_P(ReducerErrors, RejectsGradientsMarkedTwiceOrNever) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(5), group.shared_from_this(), nullptr,
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    reducer.mark_ready("p4");
    EXPECT_THAT(message_of<InvalidArgument>([&] { reducer.mark_ready("p4"); }),
                AllOf(HasSubstr("'p4'"), HasSubstr("twice"),
                      HasSubstr("Was finish() (in C++ finalize()) of that step "
                                "forgotten?")));
    EXPECT_THROW(reducer.replace_hook(nullptr), InvalidArgument) << "inside a step";
    EXPECT_THROW((void)reducer.no_sync(), InvalidArgument);
    reducer.mark_ready("p2");
    EXPECT_THAT(
        message_of<InvalidArgument>([&] { reducer.finalize(); }),
        AllOf(HasSubstr("Expected to have finished reduction in the prior iteration before starting a new one."),
              HasSubstr("p0, p1, p3"), HasSubstr("find_unused_parameters")));
    step(reducer);  // the reducer and the group stay usable
    step(reducer);
    EXPECT_THAT(message_of<InvalidArgument>([&] { reducer.mark_ready("nobody"); }),
                HasSubstr("no parameter is called 'nobody': expected one of 5: p0, p1, p2, p3, p4"));
    EXPECT_THROW(reducer.mark_ready(5), InvalidArgument);
    EXPECT_THROW(reducer.mark_ready("p0", Tensor::zeros({3})), InvalidArgument);
    EXPECT_THROW(reducer.mark_ready("p0", Tensor::zeros({40, 1}, DType::f64)), InvalidArgument);
    EXPECT_THROW(reducer.mark_ready("p0", Tensor::zeros({40, 1}).as_read_only()), InvalidArgument);
    step(reducer);
  });
}

TEST_P(ReducerErrors, RejectsResultsThatDoNotFit) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto result = [&](Tensor tensor) {
      Reducer reducer(model(2), group.shared_from_this(),
                      make_hook([tensor](GradBucket&) { return Future<Tensor>::ready(tensor); }, {.name = "odd"}));
      const std::string text = message_of<InvalidArgument>([&] { step(reducer); });
      reducer.replace_hook(make_hook("allreduce", group.shared_from_this()));
      step(reducer);
      return text;
    };
    EXPECT_THAT(result(Tensor::zeros({121})), AllOf(HasSubstr("float32[121]"), HasSubstr("float32[120]"),
                                                    HasSubstr("hook odd"), HasSubstr("bucket 0")));
    EXPECT_THAT(result(Tensor::zeros({120}, DType::f64)), HasSubstr("float64[120]"));
    EXPECT_THAT(result(Tensor::zeros({60, 2})), HasSubstr("float32[60, 2]"));
  });
}

TEST_P(ReducerErrors, HookFailureReachesEveryRank) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    const auto hook = [shared](GradBucket& bucket) -> Future<Tensor> {
      if (shared->rank() == 1 && bucket.index() == 1) throw std::runtime_error("test failure");
      const AllreduceOptions options{.op = ReduceOp::avg};
      co_await shared->allreduce(bucket.buffer(), options);
      co_return bucket.buffer();
    };
    Reducer reducer(model(4), shared, make_hook(hook, {.name = "failing"}),
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    if (group.rank() == 1) {
      EXPECT_THAT(message_of<std::runtime_error>([&] { step(reducer); }), HasSubstr("test failure"));
      EXPECT_THROW(reducer.mark_ready("p0"), std::runtime_error) << "the error is rethrown";
    } else {
      EXPECT_THAT(message_of<Aborted>([&] { step(reducer); }),
                  AllOf(HasSubstr("rank 1"), HasSubstr("test failure"), HasSubstr("bucket 1 of 4")));
    }
  });
}

TEST_P(ReducerErrors, HookFailureAbortsTheHooksOwnGroups) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto whole = group.shared_from_this();
    const auto state = std::make_shared<PostLocalSGDState>(whole, whole->new_group({0, 1}), 0);
    const auto failing = [&](HookPtr inner, GradBucket& bucket) -> Future<Tensor> {
      if (group.rank() == 1 && bucket.index() == 1) throw std::runtime_error("test failure");
      const Tensor mean = co_await run_and_parse(inner, bucket);
      co_return mean;
    };
    const HookPtr local = wrap(std::make_shared<PostLocalSGDHook>(state), failing);
    const HookPtr hook = per_parameter(std::make_shared<NoopHook>(), {.name = "nobody"}, local);
    Reducer reducer(model(4), whole, hook, {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    if (group.rank() == 1) EXPECT_THROW(step(reducer), std::runtime_error);
    else
      EXPECT_THAT(message_of<Aborted>([&] { step(reducer); }), AllOf(HasSubstr("rank 1"), HasSubstr("test failure")));
  });
}

TEST_P(ReducerErrors, HookThatNeverCompletesTimesOut) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const Promise<Tensor> never;
    const auto hook = [&](GradBucket& bucket) {
      return bucket.index() == 1 ? never.get_future() : Future<Tensor>::ready(bucket.buffer());
    };
    Reducer reducer(model(4), group.shared_from_this(), make_hook(hook, {.name = "sleepy"}),
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}, .timeout = Milliseconds(100)});
    EXPECT_THAT(message_of<Timeout>([&] { step(reducer); }),
                AllOf(HasSubstr("hook sleepy"), HasSubstr("bucket 1 of 4 in step 1"), HasSubstr("100 ms")));
    EXPECT_THROW(reducer.mark_ready(0), Timeout);
  });
}

TEST_P(ReducerErrors, NamesRankThatSkippedAStep) {
  for (const char* text : {"plain", "coroutine"}) {
    GetParam().spawn(2, [&](ProcessGroup& group) {
      HookPtr hook;
      if (std::string(text) == "coroutine") {
        hook = make_hook(
            +[](ProcessGroup& g, GradBucket& bucket) -> Future<Tensor> {
              co_await g.allreduce(bucket.buffer());
              co_return bucket.buffer();
            },
            group.shared_from_this());
      }
      Reducer reducer(model(3), group.shared_from_this(), hook);
      group.set_timeout(Milliseconds(300));
      step(reducer);
      step(reducer);
      if (group.rank() == 1) {
        // Rank 1 skips the step in which rank 0 waits.
        EXPECT_THROW(group.monitored_barrier({.timeout = Milliseconds(5000)}), Error);
        return;
      }
      const std::string text_of_error = message_of<Error>([&] { step(reducer); });
      EXPECT_THAT(text_of_error, AllOf(HasSubstr("rank 1"), HasSubstr("bucket 0 of 1 in step 3")));
    });
  }
}

TEST(ReducerErrors, RankOneStepAheadRaisesMismatch) {
  // After skipping a whole step the lanes' sequence numbers still match, so only the op_tag differs.
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const auto step = static_cast<std::uint64_t>(1 + group.rank());
    const ContextScope scope({.lane = 1, .op_tag = step << 32});
    EXPECT_THAT(message_of<Mismatch>([&] { group.allreduce(Tensor::zeros({4}))->wait(); }),
                AllOf(HasSubstr("step 1, bucket 0"), HasSubstr("step 2, bucket 0")));
  });
}

TEST_P(ReducerErrors, ListsDifferencesBetweenModels) {
  GetParam().spawn(3, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = model(4);
    if (group.rank() == 1) parameters[2] = {"other", Tensor::zeros({2}, DType::f64)};
    if (group.rank() == 2) parameters.pop_back();
    const std::string text = message_of<Mismatch>([&] { const Reducer reducer(parameters, group.shared_from_this()); });
    EXPECT_THAT(text,
                AllOf(HasSubstr("rank 0 has parameter 'p2' float32[40, 3], rank 1 has parameter 'other' float64[2]"),
                      HasSubstr("rank 0 has 4 parameters"), HasSubstr("rank 2 has nothing")));
    group.barrier()->wait();
    const bool first = group.rank() == 0;
    const std::pair<ReducerOptions, std::string> options[] = {
        {{.limits = {.first_bucket_bytes = first ? 1u : 2u}},
         "rank 0 has bucket limits 1 and 26214400, rank 1 has bucket limits 2"},
        {{.find_unused_parameters = first}, "rank 0 has find_unused_parameters true, rank 1 has"},
        {{.static_graph = first}, "rank 0 has static_graph true, rank 1 has static_graph false"},
        {{.reduction = first ? GradientReduction::sum : GradientReduction::mean},
         "rank 0 has reduction sum, rank 1 has reduction mean"},
        {{.broadcast_parameters = first}, "rank 0 has broadcast_parameters true, rank 1 has"},
    };
    for (const auto& [how, difference] : options) {
      EXPECT_THAT(
          message_of<Mismatch>([&, &given = how] { Reducer(model(4), group.shared_from_this(), nullptr, given); }),
          HasSubstr(difference));
    }
  });
}

TEST(ReducerErrors, RejectsModelsWithoutTrainableParameters) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    EXPECT_THAT(message_of<InvalidArgument>([&] { const Reducer r({}, group.shared_from_this()); }),
                HasSubstr("DistributedDataParallel is not needed when a module doesn't have any parameter that "
                          "requires a gradient."));
    std::vector<Parameter> twice = {{"a", Tensor::zeros({1})}, {"a", Tensor::zeros({1})}};
    EXPECT_THAT(message_of<InvalidArgument>([&] { const Reducer r(twice, group.shared_from_this()); }),
                HasSubstr("duplicate parameter name 'a'"));
    EXPECT_THROW(Reducer(model(1), nullptr), InvalidArgument);
    std::vector<Parameter> fixed = {{"a", Tensor::zeros({1})}, {"b", Tensor::zeros({1}).as_read_only()}};
    EXPECT_THAT(message_of<InvalidArgument>([&] { const Reducer r(fixed, group.shared_from_this()); }),
                HasSubstr("parameter 'b' is read-only"));
    const Reducer r(fixed, group.shared_from_this(), nullptr, {.broadcast_parameters = false});
  });
}

// Rank 1 fails its step without gradients for bucket 1 and starts the next one while rank 0 waits in bucket 1. Both
// ranks must fail with the number of their step, instead of averaging gradients of different steps.
TEST_P(ReducerErrors, FailedStepIsNotMixedWithTheNext) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(2), group.shared_from_this(), nullptr,
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
    group.set_timeout(Milliseconds(1000));
    step(reducer);
    step(reducer);
    reducer.mark_ready(1);
    if (group.rank() == 1) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { reducer.finalize(); }), HasSubstr("p0"));
      reducer.mark_ready(1);
    }
    reducer.mark_ready(0);
    EXPECT_THAT(message_of<Error>([&] { reducer.finalize(); }),
                AllOf(HasSubstr(group.rank() == 0 ? "bucket 1 of 2 in step 3" : "in step 4"),
                      HasSubstr(group.rank() == 0 ? "rank 1: allreduce" : "rank 0")));
  });
}

TEST_P(ReducerErrors, StepIsRepeatedIfNothingWasSent) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(2), group.shared_from_this());
    group.set_timeout(Milliseconds(10000));
    for (std::uint64_t s = 1; s <= 3; ++s) {
      for (int fails = 0; fails < group.rank(); ++fails) {
        reducer.mark_ready(1);
        EXPECT_THAT(message_of<InvalidArgument>([&] { reducer.finalize(); }), HasSubstr("p0"));
      }
      step_with_copies(reducer, s, reverse_order(2));
      EXPECT_EQ(reducer.stats().step, s);
    }
  });
}

TEST(ReducerErrors, RejectsTooFewMarksInStaticGraph) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    Reducer reducer(model(2), group.shared_from_this(), nullptr,
                    {.find_unused_parameters = true, .static_graph = true});
    for (const char* const name : {"p1", "p0", "p0"}) reducer.mark_ready(name);
    reducer.finalize();
    for (const char* const name : {"p1", "p0"}) reducer.mark_ready(name);
    EXPECT_THAT(message_of<InvalidArgument>([&] { reducer.finalize(); }),
                AllOf(HasSubstr("p0"), HasSubstr("must mark the same parameters as the first")));
  });
}

// After a failed control collective the ranks may be in different states.
TEST_P(ReducerErrors, FailedControlCollectiveFailsTheReducer) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(2), group.shared_from_this());
    step(reducer);
    const Tensor other = Tensor::zeros({7});
    if (group.rank() == 1) {
      // Calls another collective in the lane of the reducer's control collectives.
      const ContextScope scope({.lane = 1});
      EXPECT_THROW(group.allreduce(other)->wait(), Mismatch);
      return;
    }
    for (int times = 0; times < 2; ++times) {
      EXPECT_THAT(message_of<Mismatch>([&] { reducer.mark_ready(1); }),
                  AllOf(HasSubstr("broadcasting the bucket order on rank 0 of 2 in step 1"),
                        HasSubstr("step 1, outside its buckets"), HasSubstr("allreduce of 7 float32")));
    }
    EXPECT_NE(reducer.failure(), nullptr);
  });
}

TEST(ReducerErrors, UnlimitedTimeout) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    static Promise<Tensor> late;
    Reducer reducer(model(1), group.shared_from_this(),
                    make_hook([](GradBucket&) { return late.get_future(); }, {.name = "slow"}),
                    {.timeout = Milliseconds::max()});
    reducer.mark_ready(0);
    const InterruptScope waiting([] { late.try_set_value(Tensor::zeros({40})); });
    reducer.finalize();
  });
}

TEST(ReducerErrors, FailedStepWaitsForRunningHooks) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    Promise<Tensor> late;
    Reducer reducer(model(2), group.shared_from_this(),
                    make_hook([&](GradBucket&) { return late.get_future(); }, {.name = "slow"}),
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}, .timeout = Milliseconds(100)});
    reducer.mark_ready(1);  // its hook is running when the step fails because p0 is missing
    EXPECT_THAT(message_of<Timeout>([&] { reducer.finalize(); }),
                AllOf(HasSubstr("hook slow was still running when step 1 failed"), HasSubstr("p0")));
    late.set_value(Tensor::zeros({80}));
    EXPECT_THROW(reducer.mark_ready(1), Timeout);
  });
}

TEST(ReducerErrors, BuffersOutliveInterruptedWait) {
  threads_fixture().spawn(2, [](ProcessGroup& inner) {
    for (const int passed : {0, 1}) {  // the allgathers of hashes and of descriptions
      const auto group = std::make_shared<InterruptedGroup>(inner);
      group->allow(passed);
      EXPECT_THROW(Reducer(model(inner.rank() == 0 ? 2 : 3), group), InterruptedGroup::Interrupt);
      EXPECT_TRUE(group->tensors_alive()) << passed;
    }
    const auto group = std::make_shared<InterruptedGroup>(inner);
    group->allow(100);
    Reducer reducer(model(2), group);
    step(reducer);
    group->allow(1);  // passes the allreduce of views_exposed_, then interrupts the broadcast of the bucket order
    EXPECT_THROW(step(reducer), InterruptedGroup::Interrupt);
    EXPECT_TRUE(group->tensors_alive());
  });
}

// The hook's Future completes after the reducer was destroyed.
TEST(ReducerErrors, HooksOutliveTheReducer) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    Promise<Tensor> later;
    {
      Reducer reducer(model(2), group.shared_from_this(), make_hook([&](GradBucket&) { return later.get_future(); }));
      reducer.mark_ready(1);
      reducer.mark_ready(0);
    }
    later.set_value(Tensor::zeros({1}));
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ReducerErrors, ::testing::Values(threads_fixture(), shm_fixture()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
