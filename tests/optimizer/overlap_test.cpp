// Tests for overlapped optimizer steps: bitwise equal to steps after finalize().
#include <hookline/optimizer/overlap.hpp>

#include <atomic>
#include <cmath>
#include <limits>
#include <random>
#include <stdexcept>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/kernel/norm.hpp>
#include <hookline/reducer/reducer.hpp>

#include "group/rank_threads.hpp"
#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;

const BucketLimits kSmall{.first_bucket_bytes = 500, .bucket_bytes = 1000};

std::vector<Parameter> new_model(std::size_t count = 9, std::int64_t width = 40) {
  std::vector<Parameter> parameters = model(count, width);
  for (std::size_t p = 0; p < count; ++p) {
    parameters[p].tensor.copy_from(gradient_like(parameters[p], 5, p, 0));
  }
  return parameters;
}

void require_same(const std::vector<Parameter>& a, const std::vector<Parameter>& b, const std::string& when) {
  for (std::size_t p = 0; p < a.size(); ++p) {
    for (std::int64_t i = 0; i < a[p].tensor.numel(); ++i) {
      if (a[p].tensor.data<const float>()[i] == b[p].tensor.data<const float>()[i]) continue;
      throw std::runtime_error(a[p].name + " differs in element " + std::to_string(i) + ", " + when);
    }
  }
}

using Skipped = std::function<bool(std::size_t parameter, std::uint64_t step)>;

/// Marks copies of all gradients that are not skipped, and returns them.
std::vector<Tensor> backward(Reducer& reducer, std::uint64_t step, const Skipped& skipped = nullptr) {
  std::vector<Tensor> gradients(reducer.parameters().size());
  for (std::size_t p = gradients.size(); p-- > 0;) {
    if (skipped && skipped(p, step)) continue;
    gradients[p] = gradient_like(reducer.parameters()[p], reducer.group()->rank(), p, step);
    reducer.mark_ready(p, gradients[p]);
  }
  return gradients;
}

std::vector<Tensor> train(Reducer& reducer, std::uint64_t step, const Skipped& skipped = nullptr) {
  std::vector<Tensor> gradients = backward(reducer, step, skipped);
  reducer.finalize();
  return gradients;
}

/// Updates the parameters with the mean gradients after finalize().
void step_after(Optimizer& optimizer, Reducer& reducer, const std::vector<Tensor>& means, double scale = 1) {
  for (std::size_t p = 0; p < means.size(); ++p) {
    if (means[p].owner()) optimizer.step(reducer.parameters()[p].name, reducer.parameters()[p].tensor, means[p], scale);
  }
}

class Overlap : public ::testing::TestWithParam<GroupFixture> {};
INSTANTIATE_TEST_SUITE_P(Fixtures, Overlap, ::testing::Values(threads_fixture(), shm_fixture()),
                         [](const auto& test) { return test.param.name; });

TEST_P(Overlap, MatchesAStepAfterFinalize) {
  for (const char* text :
       {"sgd(lr=0.1, momentum=0.9, nesterov=true)", "adam(lr=0.01)", "adamw(lr=0.01, amsgrad=true)"}) {
    for (const char* hook : {"allreduce", "fp16", "int8 | error_feedback"}) {
      GetParam().spawn(2, [&](ProcessGroup& group) {
        const auto shared = group.shared_from_this();
        Reducer one(new_model(), shared, overlap(make_hook(hook, shared), make_optimizer(text)), {.limits = kSmall});
        Reducer other(new_model(), shared, make_hook(hook, shared), {.limits = kSmall});
        const OptimizerPtr by_hand = make_optimizer(text);
        for (std::uint64_t s = 1; s <= 6; ++s) {
          train(one, s);
          step_after(*by_hand, other, train(other, s));
          require_same(one.parameters(), other.parameters(), "step " + std::to_string(s));
        }
      });
    }
  }
}

// Buckets large enough for the worker thread, with random delays on each rank.
TEST_P(Overlap, LargeBucketsAndRandomDelays) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  GetParam().spawn(2, [&](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    std::mt19937 random(seed + static_cast<unsigned>(group.rank()));
    const auto delay = [&] {
      for (auto i = random() % 200'000; i > 0; --i) std::atomic_signal_fence(std::memory_order_seq_cst);
    };
    const BucketLimits limits{.first_bucket_bytes = 70'000, .bucket_bytes = 100'000};
    Reducer one(new_model(8, 8000), shared, overlap(make_hook("allreduce", shared), make_optimizer("adam(lr=0.01)")),
                {.limits = limits});
    Reducer other(new_model(8, 8000), shared, nullptr, {.limits = limits});
    const OptimizerPtr by_hand = make_optimizer("adam(lr=0.01)");
    for (std::uint64_t s = 1; s <= 4; ++s) {
      std::vector<Tensor> means = train(other, s);
      for (std::size_t p = 8; p-- > 0;) {
        delay();
        one.mark_ready(p, gradient_like(one.parameters()[p], group.rank(), p, s));
      }
      delay();
      one.finalize();
      step_after(*by_hand, other, means);
      require_same(one.parameters(), other.parameters(), "step " + std::to_string(s));
    }
  });
}

TEST_P(Overlap, ClipsByTheGlobalNorm) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    for (const double clip : {0.5, 1e6}) {
      Reducer one(
          new_model(), shared,
          overlap(make_hook("allreduce", shared), make_optimizer("sgd(lr=0.1, momentum=0.9)"), {.clip_norm = clip}),
          {.limits = kSmall});
      Reducer other(new_model(), shared, nullptr, {.limits = kSmall});
      const OptimizerPtr by_hand = make_optimizer("sgd(lr=0.1, momentum=0.9)");
      for (std::uint64_t s = 1; s <= 4; ++s) {
        train(one, s);
        const std::vector<Tensor> means = train(other, s);
        double squares = 0;
        for (const Tensor& mean : means) squares += squared_norm(mean).item<double>();
        const double scale = std::min(1.0, clip / (std::sqrt(squares) + 1e-6));
        if ((scale < 1) != (clip < 1)) throw std::runtime_error("the test clips nothing");
        step_after(*by_hand, other, means, scale);
        for (std::size_t p = 0; p < 9; ++p) {
          for (std::int64_t i = 0; i < one.parameters()[p].tensor.numel(); ++i) {
            const float off =
                one.parameters()[p].tensor.data<float>()[i] - other.parameters()[p].tensor.data<float>()[i];
            if (std::abs(off) > 1e-6f) throw std::runtime_error("off by " + std::to_string(off));
          }
        }
      }
    }
  });
}

TEST_P(Overlap, NanNormMakesAllParametersNan) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    Reducer reducer(new_model(), shared,
                    overlap(make_hook("allreduce", shared), make_optimizer("sgd(lr=0.1)"), {.clip_norm = 1}),
                    {.limits = kSmall});
    for (std::size_t p = 9; p-- > 0;) {
      const float value = p == 4 ? std::numeric_limits<float>::quiet_NaN() : 1000;
      reducer.mark_ready(p, Tensor::full(reducer.parameters()[p].tensor.shape(), value));
    }
    reducer.finalize();
    for (const Parameter& parameter : reducer.parameters()) {
      if (!std::isnan(parameter.tensor.data<float>()[0])) throw std::runtime_error(parameter.name + " was updated");
    }
  });
}

// p3 is unused on all ranks in odd steps; p5 has a gradient on rank 0 only, so it counts as used.
TEST_P(Overlap, SkipsGloballyUnusedParameters) {
  for (const bool clipped : {false, true}) {
    GetParam().spawn(2, [&](ProcessGroup& group) {
      const auto shared = group.shared_from_this();
      const char* const text = "adamw(lr=0.1, weight_decay=0.5)";
      const Skipped globally_unused = [](std::size_t p, std::uint64_t s) { return p == 3 && s % 2 == 1; };
      const Skipped skipped = [&](std::size_t p, std::uint64_t s) {
        return globally_unused(p, s) || (p == 5 && group.rank() == 1);
      };
      OverlapOptions options;
      if (clipped) options.clip_norm = 1e6;
      Reducer one(new_model(), shared, overlap(make_hook("allreduce", shared), make_optimizer(text), options),
                  {.limits = kSmall, .find_unused_parameters = true});
      Reducer other(new_model(), shared, nullptr, {.limits = kSmall, .find_unused_parameters = true});
      const OptimizerPtr by_hand = make_optimizer(text);
      for (std::uint64_t s = 1; s <= 4; ++s) {
        train(one, s, skipped);
        train(other, s, skipped);
        for (std::size_t p = 0; p < 9; ++p) {
          const Parameter& parameter = other.parameters()[p];
          if (!globally_unused(p, s)) by_hand->step(parameter.name, parameter.tensor, other.gradient(p));
        }
        require_same(one.parameters(), other.parameters(), "step " + std::to_string(s));
      }
    });
  }
}

TEST_P(Overlap, StaticGraphSkipsUnusedParameters) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    const Skipped skipped = [](std::size_t p, std::uint64_t) { return p == 4; };
    Reducer reducer(new_model(), shared, overlap(make_hook("allreduce", shared), make_optimizer("adamw(lr=0.1)")),
                    {.limits = kSmall, .static_graph = true});
    const std::vector<Parameter> before = new_model();
    for (std::uint64_t s = 1; s <= 3; ++s) {
      train(reducer, s, skipped);
      require_same({reducer.parameters()[4]}, {before[4]}, "step " + std::to_string(s));
      if (reducer.parameters()[3].tensor.data<float>()[0] == before[3].tensor.data<float>()[0]) {
        throw std::runtime_error("the others were not stepped");
      }
    }
  });
}

TEST_P(Overlap, AccumulationStepsOnce) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    Reducer reducer(new_model(), shared, overlap(make_hook("allreduce", shared), make_optimizer("sgd(lr=1)")),
                    {.limits = kSmall});
    {
      const auto scope = reducer.no_sync();
      train(reducer, 1);
    }
    require_same(reducer.parameters(), new_model(), "under no_sync");
    const std::vector<Tensor> means = train(reducer, 2);
    const std::vector<Parameter> by_hand = new_model();
    for (std::size_t p = 0; p < 9; ++p) make_optimizer("sgd(lr=1)")->step("p", by_hand[p].tensor, means[p]);
    require_same(reducer.parameters(), by_hand, "after it");
  });
}

// Rank 1 runs three steps fewer than rank 0 and joins: parameters and optimizer state stay equal on all ranks.
TEST_P(Overlap, JoinedRanksStepLikeTheOthers) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    const OptimizerPtr adam = make_optimizer("adam(lr=0.1)");
    Reducer reducer(new_model(), shared, overlap(make_hook("allreduce", shared), adam), {.limits = kSmall});
    reducer.join([&] {
      for (std::uint64_t s = 1; s <= (group.rank() == 0 ? 5u : 2u); ++s) train(reducer, s);
    });
    if (adam->state().at("p0").step != 5) throw std::runtime_error("not every step was taken");
    train(reducer, 6);
    const Tensor sum = reducer.parameters()[0].tensor.clone();
    const Tensor least = sum.clone();
    group.allreduce(sum, {.op = ReduceOp::max})->wait();
    group.allreduce(least, {.op = ReduceOp::min})->wait();
    for (std::int64_t i = 0; i < sum.numel(); ++i) {
      if (sum.data<float>()[i] != least.data<float>()[i]) throw std::runtime_error("the ranks differ");
    }
  });
}

TEST_P(Overlap, KeepsOptimizerStateAcrossReplaceAndResume) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    const OptimizerPtr adam = make_optimizer("adam(lr=0.1)");
    const auto hook = [&](const OptimizerPtr& with) { return overlap(make_hook("allreduce", shared), with); };
    Reducer whole(new_model(), shared, hook(make_optimizer("adam(lr=0.1)")), {.limits = kSmall});
    Reducer replaced(new_model(), shared, hook(adam), {.limits = kSmall});
    for (std::uint64_t s = 1; s <= 3; ++s) {
      train(whole, s);
      train(replaced, s);
    }
    const std::vector<std::byte> saved = save_state(*whole.hook(), group);
    replaced.replace_hook(hook(adam));
    train(replaced, 4);
    std::vector<Parameter> copies = whole.parameters();
    for (Parameter& p : copies) p.tensor = p.tensor.clone();
    const HookPtr loaded = hook(make_optimizer("adam(lr=0.5)"));
    load_state(*loaded, group, saved);
    Reducer resumed(copies, shared, loaded, {.limits = kSmall});
    train(whole, 4);
    train(resumed, 4);
    require_same(whole.parameters(), replaced.parameters(), "replaced");
    require_same(whole.parameters(), resumed.parameters(), "resumed");
  });
}

TEST(OverlapSteps, RunsACallback) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    std::atomic<int> buckets = 0;
    const auto descend = [&](const GradBucket& bucket) {
      ++buckets;
      const std::vector<Tensor> gradients = bucket.gradients();
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        float* const p = bucket.parameters()[i].data<float>();
        for (std::int64_t k = 0; k < gradients[i].numel(); ++k) p[k] -= 0.5f * gradients[i].data<const float>()[k];
      }
      return Future<void>::ready();
    };
    Reducer one(new_model(), shared, overlap(make_hook("allreduce", shared), descend, "descend"), {.limits = kSmall});
    Reducer other(new_model(), shared, overlap(make_hook("allreduce", shared), make_optimizer("sgd(lr=0.5)")),
                  {.limits = kSmall});
    train(one, 1);
    train(other, 1);
    require_same(one.parameters(), other.parameters(), "by a function");
    if (buckets != static_cast<int>(one.buckets().size())) throw std::runtime_error("not once a bucket");
    if (one.hook()->name() != "allreduce | overlap(descend)") throw std::runtime_error(one.hook()->name());
  });
}

TEST(OverlapSteps, ClippingLeavesGradientsUnchanged) {
  const auto shared = make_thread_groups(1)[0];
  double seen = 0;
  const auto step = [&](const GradBucket& bucket) {
    seen += squared_norm(bucket.buffer()).item<double>();
    return Future<void>::ready();
  };
  Reducer reducer(new_model(), shared, overlap(make_hook("allreduce", shared), step, "sums", {.clip_norm = 0.5}),
                  {.limits = kSmall});
  for (std::size_t p = reducer.parameters().size(); p-- > 0;) {
    reducer.gradient(p).fill(2);
    reducer.mark_ready(p);
  }
  reducer.finalize();
  EXPECT_NEAR(std::sqrt(seen), 0.5, 1e-4);
  EXPECT_EQ(reducer.gradient(0).flatten().slice(0, 0, 1).item<float>(), 2);
}

TEST(OverlapSteps, AFailedStepFailsTheReducerOnEveryRank) {
  for (const bool at_the_end : {false, true}) {
    const std::vector<std::string> errors = on_ranks(make_thread_groups(2), [&](ProcessGroup& group, int rank) {
      const auto shared = group.shared_from_this();
      const auto fails = [rank](const GradBucket& bucket) -> Future<void> {
        if (rank == 1 && bucket.index() == 1) throw std::runtime_error("no step today");
        return Future<void>::ready();
      };
      OverlapOptions options;
      if (at_the_end) options.clip_norm = 1;
      Reducer reducer(new_model(), shared, overlap(make_hook("allreduce", shared), fails, "fails", options),
                      {.limits = kSmall});
      for (std::uint64_t s = 1; s <= 3; ++s) train(reducer, s);
    });
    EXPECT_THAT(errors[0], HasSubstr("no step today"));
    EXPECT_THAT(errors[1], HasSubstr("no step today"));
  }
}

TEST(OverlapSteps, RejectInvalidArguments) {
  const auto shared = make_thread_groups(1)[0];
  const HookPtr plain = make_hook("allreduce", shared);
  const OptimizerPtr sgd = make_optimizer("sgd");
  EXPECT_THROW((void)overlap(nullptr, sgd), InvalidArgument);
  EXPECT_THROW((void)overlap(plain, OptimizerPtr()), InvalidArgument);
  EXPECT_THROW((void)overlap(plain, BucketStep(), "empty"), InvalidArgument);
  for (const double norm : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    EXPECT_THROW((void)overlap(plain, sgd, {.clip_norm = norm}), InvalidArgument);
  }
  // A bucket without parameters.
  GradBucket bucket(0, 1, Tensor::zeros({3}), std::make_shared<const BucketLayout>(layout_of({Dims{3}})));
  EXPECT_THROW((void)overlap(plain, sgd)->run_hook(bucket).wait(), InvalidArgument);
  // Clipping requires a reducer, which reports the end of the step.
  auto layout = std::make_shared<const BucketLayout>(layout_of({Dims{3}}, {Tensor::zeros({3})}, {"p"}));
  GradBucket alone(0, 1, Tensor::zeros({3}), std::move(layout));
  EXPECT_THROW((void)overlap(plain, sgd, {.clip_norm = 1})->run_hook(alone).wait(), InvalidArgument);
  EXPECT_NO_THROW((void)overlap(plain, sgd)->run_hook(alone).wait());
  // Sparse gradients.
  std::vector<Parameter> parameters = {{"rows", Tensor::zeros({4, 2}), true}};
  Reducer sparse(parameters, shared, overlap(plain, sgd));
  std::vector<std::int64_t> rows = {1};
  sparse.mark_ready(0, SparseGradient{Tensor::borrow(rows), Tensor::zeros({1, 2})});
  EXPECT_THROW(sparse.finalize(), Unsupported);
}

}  // namespace
}  // namespace hookline::testing
