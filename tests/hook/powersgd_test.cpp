// Tests the PowerSGD hook: exactness, recovery, error feedback, saved state, statistics and invalid arguments. The
// Python tests compare its arithmetic with a NumPy reference.
#include <hookline/hook/powersgd.hpp>

#include <cmath>
#include <latch>
#include <limits>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/call_context.hpp>
#include <hookline/core/error.hpp>
#include <hookline/hook/ddp_comm_hook_type.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/hook/registry.hpp>

#include "harness/spawn.hpp"
#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

float value(int rank, int step, std::int64_t i) {
  return static_cast<float>(std::sin(0.37 * static_cast<double>(i * i % 1009) + 1.7 * step + rank));
}

GradBucket bucket_of(const Layout& layout, int rank, int step, std::size_t index = 0, std::size_t count = 1) {
  return bucket_with(layout, [&](std::int64_t i) { return value(rank, step, i); }, index, count);
}

bool all_finite(const Tensor& t) {
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    if (!std::isfinite(t.data<const float>()[i])) return false;
  }
  return true;
}

/// Throws if the ranks have different bits.
void require_same_on_all(ProcessGroup& group, const Tensor& t, const std::string& what) {
  const Tensor others = Tensor::empty({t.numel() * group.size()}, t.dtype());
  group.allgather_into_tensor(others, t)->wait(20s);
  for (int r = 0; r < group.size(); ++r) {
    require(same_bits(t, others.slice(0, r * t.numel(), (r + 1) * t.numel()).clone()), what + ": ranks differ");
  }
}

const std::vector<std::string> kTexts = {
    "powersgd(start_iter=2)",
    "powersgd(rank=3, start_iter=2, wire=fp16)",
    "powersgd(rank=2, start_iter=2, wire=bf16, warm_start=false)",
    "powersgd(rank=5, start_iter=0, error_feedback=false, warm_start=false, epsilon=1e-8)",
    "batched_powersgd(rank=2, start_iter=2)",
    "batched_powersgd(rank=1, start_iter=2, wire=fp16)",
};

Layout model() {
  return layout({Dims{30, 20}, Dims{77}, Dims{}, Dims{7, 6, 9}, Dims{1, 50}, Dims{40, 33}},
                {"a", "b", "c", "d", "e", "f"});
}

TEST(PowerSGD, AllRanksGetTheSameBits) {
  for (const int ranks : {1, 2, 3, 4}) {
    threads_fixture().spawn(ranks, [&](ProcessGroup& group) {
      for (const std::string& text : kTexts) {
        const auto hook = make_hook(text, group.shared_from_this());
        for (int step = 0; step < 6; ++step) {
          const Tensor result = run(hook, bucket_of(model(), group.rank(), step));
          require(all_finite(result), text);
          require_same_on_all(group, result, text);
        }
      }
    });
  }
}

TEST(PowerSGD, PlainMeansBeforeStartAndForUncompressedTensors) {
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    const auto hook = make_hook("powersgd(start_iter=3, rank=2)", group.shared_from_this());
    const Layout all = model();
    for (int step = 0; step < 5; ++step) {
      const Tensor result = run(hook, bucket_of(all, group.rank(), step));
      bool exact = true;
      for (std::int64_t i = 0; i < result.numel(); ++i) {
        const bool near = std::abs(result.data<float>()[i] - (value(0, step, i) + value(1, step, i)) / 2) < 1e-6F;
        const bool compressed = i < 600 || (i >= 678 && i < 678 + 378) || i >= 1056 + 50;
        require(near || (step >= 3 && compressed), fmt::format("step {}, element {}", step, i));
        exact = exact && near;
      }
      require(exact == (step < 3), "compression starts at step 3");
    }
  });
}

// The mean of rank-deficient matrices with shared factors has the same rank.
TEST(PowerSGD, LowRankMatricesAreExact) {
  for (const bool batched : {false, true}) {
    threads_fixture().spawn(3, [&](ProcessGroup& group) {
      const std::string text = batched ? "batched_powersgd" : "powersgd";
      const auto hook = make_hook(text + "(rank=2, start_iter=2)", group.shared_from_this());
      const Layout one = layout({Dims{24, 24}}, {"w"});
      for (int step = 0; step < 5; ++step) {
        GradBucket bucket = bucket_of(one, group.rank(), step);
        double mean[576] = {};
        for (int r = 0; r < 3; ++r) {
          for (int i = 0; i < 24; ++i) {
            for (int j = 0; j < 24; ++j) {
              const double x = std::sin(i) * std::cos(j * (r + 1)) + (r - step) * std::cos(2.0 * i) * std::sin(3.0 * j);
              mean[24 * i + j] += x / 3;
              if (r == group.rank()) bucket.buffer().data<float>()[24 * i + j] = static_cast<float>(x);
            }
          }
        }
        run(hook, bucket);
        for (int i = 0; i < 576; ++i) require(std::abs(bucket.buffer().data<float>()[i] - mean[i]) < 1e-5, text);
      }
    });
  }
}

TEST(PowerSGD, ErrorFeedbackConvergesToTheMean) {
  const auto group = single_rank_group();
  const Layout one = layout({Dims{16, 24}}, {"w"});
  const auto off_by = [&](const std::string& text) {
    const auto hook = make_hook(text, group);
    double sum[384] = {}, sent[384] = {}, off = 0;
    for (int step = 0; step < 240; ++step) {
      GradBucket bucket = bucket_of(one, 0, step % 3);
      for (int i = 0; i < 384; ++i) sum[i] += bucket.buffer().data<float>()[i];
      run(hook, bucket);
      for (int i = 0; i < 384; ++i) sent[i] += bucket.buffer().data<float>()[i];
    }
    for (int i = 0; i < 384; ++i) off = std::max(off, std::abs(sum[i] - sent[i]));
    return off;
  };
  EXPECT_LT(off_by("powersgd(start_iter=2)"), 15);
  EXPECT_GT(off_by("powersgd(start_iter=2, error_feedback=false)"), 60);
}

TEST(PowerSGD, ZeroGradientsStayZero) {
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    for (const std::string& text : kTexts) {
      const auto hook = make_hook(text, group.shared_from_this());
      for (int step = 0; step < 8; ++step) {
        GradBucket bucket = bucket_of(model(), group.rank(), step);
        if (step >= 2 && step < 5) bucket.buffer().fill(0);
        const Tensor result = run(hook, bucket);
        require(all_finite(result), text + " is not finite");
        double size = 0;
        for (int i = 0; i < 600; ++i) size += std::abs(result.data<const float>()[i]);
        if (step == 2) require(size == 0, text + ": zeros");
        if (step == 7) require(size > 10, text + ": compression stayed at zero");
      }
    }
  });
}

TEST(PowerSGD, RecoversFromNonFiniteValues) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    for (const std::string& text : kTexts) {
      for (const float bad : {nan, infinite, -infinite}) {
        const auto hook = make_hook(text, group.shared_from_this());
        for (int step = 0; step < 7; ++step) {
          GradBucket bucket = bucket_of(model(), group.rank(), step);
          if (step == 3 && group.rank() == 1) bucket.buffer().data<float>()[40] = bad;
          const Tensor result = run(hook, bucket);
          require_same_on_all(group, result.view_as(DType::i32), text);
          if (step == 3) require(!std::isfinite(result.data<const float>()[40]), text + ": finite result");
          else require(all_finite(result), text + fmt::format(" in step {}", step));
        }
        for (const HookStats& cost : hook->stats()) require(std::isfinite(cost.residual_norm), text);
      }
    }
  });
}

TEST(PowerSGD, BucketsOfAStepMayRunInAnyOrder) {
  const auto group = single_rank_group();
  const auto hook = make_hook("powersgd(start_iter=2)", group);
  for (int step = 0; step < 3; ++step) {
    EXPECT_TRUE(hook->stats().empty()) << "compressed before step 2";
    hook->begin_step({});
    for (const std::size_t b : {1u, 0u}) {
      const auto name = [&](const char* which) { return which + std::to_string(b); };
      run(hook, bucket_of(layout({Dims{30, 20}, Dims{7}}, {name("w"), name("b")}), 0, step, b, 2));
    }
    hook->end_step({});
  }
  EXPECT_EQ(hook->stats().size(), 2u);
}

TEST(PowerSGD, ResumesBitForBit) {
  for (std::string text : kTexts) {
    for (const char* around : {"", " | where(name=?, fallback=fp16)"}) {
      text += around;
      threads_fixture().spawn(3, [&](ProcessGroup& group) {
        const auto whole = make_hook(text, group.shared_from_this());
        const auto first = make_hook(text, group.shared_from_this());
        Tensor expected, resumed, fresh_result;
        for (int step = 0; step < 8; ++step) {
          expected = run(whole, bucket_of(model(), group.rank(), step));
          if (step < 5) run(first, bucket_of(model(), group.rank(), step));
        }
        const std::vector<std::byte> state = save_state(*first, group);
        const auto second = make_hook(text, group.shared_from_this());
        load_state(*second, group, state);
        require(save_state(*second, group) == state, text + ": the state changed in a round trip");
        const auto fresh = make_hook(text, group.shared_from_this());
        for (int step = 5; step < 8; ++step) {
          resumed = run(second, bucket_of(model(), group.rank(), step));
          fresh_result = run(fresh, bucket_of(model(), group.rank(), step));
        }
        require(same_bits(expected, resumed), text + ": a resumed run has different bits");
        require(!same_bits(expected, fresh_result), text + ": the state had no effect");
      });
    }
  }
}

TEST(PowerSGD, CorruptStatesDoNotCrash) {
  const auto group = single_rank_group();
  const auto hook = make_hook("powersgd(start_iter=2)", group);
  const Layout small = layout({Dims{9, 8}, Dims{2}}, {"w", "b"});
  for (int step = 0; step < 3; ++step) run(hook, bucket_of(small, 0, step));
  const auto state = save_state(*hook, *group);
  const auto other = make_hook("powersgd(start_iter=2)", group);
  for (std::size_t size = 0; size < state.size(); ++size) {
    EXPECT_THROW(load_state(*other, *group, std::span(state).first(size)), InvalidArgument);
  }
  for (std::size_t i = 0; i < state.size(); ++i) {
    auto corrupt = state;
    corrupt[i] ^= std::byte{0xff};
    try {
      load_state(*other, *group, corrupt);
      run(other, bucket_of(small, 0, 0));
    } catch (const InvalidArgument&) {
    }
  }
}

TEST(PowerSGD, ResidualsAndFactorsFollowParametersIntoOtherBuckets) {
  const auto group = single_rank_group();
  for (const char* text : {"powersgd(rank=2, start_iter=2)", "powersgd(rank=2, start_iter=2, warm_start=false)"}) {
    const auto hook = make_hook(text, group);
    const auto other = make_hook(text, group);
    const Layout ab = layout({Dims{12, 10}, Dims{8, 14}, Dims{3}}, {"a", "b", "c"});
    const Layout ba = layout({Dims{3}, Dims{8, 14}, Dims{12, 10}}, {"c", "b", "a"});
    for (int step = 0; step < 4; ++step) {
      run(hook, bucket_of(ab, 0, step));
      run(other, bucket_of(ab, 0, step));
    }
    for (int step = 4; step < 7; ++step) {
      GradBucket straight = bucket_of(ab, 0, step);
      GradBucket swapped(0, 1, Tensor::empty({235}), ba);
      for (std::size_t i = 0; i < 3; ++i) swapped.gradients()[2 - i].copy_from(straight.gradients()[i]);
      run(hook, straight);
      run(other, swapped);
      for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(same_bits(straight.gradients()[i].clone(), swapped.gradients()[2 - i].clone())) << text << i;
      }
    }
  }
}

// Rebucketing changed only the second bucket. When the hook detects this, the first bucket is already running and waits
// for the other rank.
TEST(PowerSGD, RebucketingLeavesRunningBucketsAlone) {
  for (const char* text :
       {"powersgd(rank=2, start_iter=2)", "powersgd(rank=2, start_iter=0, error_feedback=false, warm_start=false)"}) {
    std::latch started(1);
    threads_fixture().spawn(2, [&](ProcessGroup& group) {
      const auto hook = make_hook(text, group.shared_from_this());
      const auto uncut = make_hook(text, group.shared_from_this());
      const auto bucket_named = [&](char name, int step, std::size_t index) {
        const Layout one = layout({Dims{24, 20}}, {std::string(1, name)});
        return bucket_with(one, [&](std::int64_t i) { return value(group.rank(), step + name, i); }, index, 3);
      };
      for (int step = 0; step < 4; ++step) {
        for (const HookPtr& each : {hook, uncut}) each->begin_step({});
        for (std::size_t b = 0; b < 3; ++b) {
          for (const HookPtr& each : {hook, uncut}) run(each, bucket_named("abc"[b], step, b));
        }
        for (const HookPtr& each : {hook, uncut}) each->end_step({});
      }
      const std::string names = "acb";
      for (int step = 4; step < 6; ++step) {
        std::vector<GradBucket> buckets;
        for (std::size_t b = 0; b < 3; ++b) buckets.push_back(bucket_named(names[b], step, b));
        if (group.rank() == 1 && step == 4) started.wait();
        hook->begin_step({});
        std::vector<Future<Tensor>> results;
        for (std::size_t b = 0; b < 3; ++b) {
          const ContextScope in_lane({.lane = static_cast<int>(b) + 1});
          results.push_back(run_and_parse(hook, buckets[b]));
        }
        if (group.rank() == 0 && step == 4) started.count_down();
        for (const auto& result : results) result.wait(20s);
        hook->end_step({});
        uncut->begin_step({});
        for (std::size_t b = 0; b < 3; ++b) {
          const Tensor wanted = run(uncut, bucket_named(names[b], step, static_cast<std::size_t>(names[b] - 'a')));
          require(same_bits(buckets[b].buffer(), wanted), fmt::format("{}: {} in step {}", text, names[b], step));
        }
        uncut->end_step({});
      }
    });
  }
}

TEST(PowerSGD, RejectsStateOfAnotherModel) {
  const auto group = single_rank_group();
  const auto message = [&](const Layout& here, const std::shared_ptr<PowerSGDState>& state) -> std::string {
    try {
      for (int step = 0; step < 2; ++step)
        run(std::make_shared<PowerSGDHook>(state, false, group), bucket_of(here, 0, 0));
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "";
  };
  const Layout first = layout({Dims{12, 10}, Dims{8, 14}}, {"a", "b"});
  for (const bool loaded : {false, true}) {
    auto state = std::make_shared<PowerSGDState>(nullptr, PowerSGDOptions{.start_powerSGD_iter = 2});
    EXPECT_EQ(message(first, state), "");
    EXPECT_EQ(message(first, state), "");
    if (loaded) {
      const std::vector<std::byte> saved = save_state(*state);
      state = std::make_shared<PowerSGDState>(nullptr, PowerSGDOptions{.start_powerSGD_iter = 2});
      load_state(*state, saved);
      EXPECT_EQ(save_state(*state), saved);
      EXPECT_THROW(load_state(*state, std::span(saved).first(saved.size() - 1)), InvalidArgument);
    }
    EXPECT_THAT(message(layout({Dims{12, 10}, Dims{14, 8}}, {"a", "b"}), state),
                HasSubstr("parameter b: expected the shape [14, 8], got [8, 14] in the state"));
    EXPECT_THAT(message(layout({Dims{12, 10}, Dims{8, 14}, Dims{2}}, {"a", "b", "c"}), state),
                HasSubstr("it lacks parameter c of shape [2]"));
    EXPECT_THAT(message(layout({Dims{12, 10}}, {"a"}), state),
                HasSubstr("it has parameter b of shape [8, 14], which this model lacks"));
  }
}

TEST(PowerSGD, ReportsCompressionStats) {
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    const auto state = std::make_shared<PowerSGDState>(
        nullptr, PowerSGDOptions{.matrix_approximation_rank = 2, .start_powerSGD_iter = 2});
    const auto hook = std::make_shared<PowerSGDHook>(state, false, group.shared_from_this());
    const Layout big = layout({Dims{100, 80}, Dims{30}}, {"w", "b"});
    const Layout small = layout({Dims{5}}, {"c"});
    for (int step = 0; step < 4; ++step) {
      run(hook, bucket_of(big, group.rank(), step, 0, 2));
      run(hook, bucket_of(small, group.rank(), step, 1, 2));
      require(state->iter() == static_cast<std::uint64_t>(step) + 1, "steps");
      const auto totals = state->compression_stats();
      const std::uint64_t times = step < 2 ? 0 : static_cast<std::uint64_t>(step) - 1;
      require(totals.numel_before == times * 8035 && totals.numel_after == times * (360 + 35), "elements");
      require(times == 0 ? totals.rate == 0 : std::abs(totals.rate - 8035.0 / 395) < 1e-9, "rate");
    }
    const auto costs = hook->stats();
    require(costs.size() == 2 && costs[0].values == 8030 && costs[0].bytes_sent == 4 * 390, "bytes sent");
    require(std::abs(costs[0].ratio - 8030.0 / 390) < 1e-9 && costs[0].residual_norm > 1, "ratio and error");
    require(costs[0].encode_time > 0 && costs[0].decode_time > 0, "times");
    require(costs[1].bytes_sent == 20 && costs[1].ratio == 1 && costs[1].residual_norm == 0, "uncompressed bucket");
    const auto kept = state->bucket_states();
    require(kept.at(0).residual.numel() == 8030 && kept.at(0).p.numel() == 200 && kept.at(0).q.numel() == 160, "state");
  });
}

TEST(PowerSGD, GradientsOfEveryFloatingPointType) {
  threads_fixture().spawn(2, [&](ProcessGroup& group) {
    const Layout one = layout({Dims{20, 30}, Dims{4}}, {"w", "b"});
    const auto exact = make_hook("powersgd(rank=2, start_iter=2)", group.shared_from_this());
    std::vector<HookPtr> hooks;
    const std::vector<std::pair<DType, double>> types = {{DType::f64, 1e-6}, {DType::f16, 4e-2}, {DType::bf16, 3e-1}};
    for (std::size_t t = 0; t < types.size(); ++t) {
      hooks.push_back(make_hook("powersgd(rank=2, start_iter=2)", group.shared_from_this()));
    }
    for (int step = 0; step < 4; ++step) {
      const Tensor wanted = run(exact, bucket_of(one, group.rank(), step));
      for (std::size_t t = 0; t < types.size(); ++t) {
        const Tensor values = Tensor::empty({604}, types[t].first);
        visit_dtype(types[t].first, [&](auto element) {
          using T = decltype(element);
          for (int i = 0; i < 604; ++i) values.data<T>()[i] = static_cast<T>(value(group.rank(), step, i));
        });
        run(hooks[t], GradBucket(0, 1, values, one));
        require_same_on_all(group, values, "bits");
        for (std::int64_t i = 0; i < 604; ++i) {
          const auto is = values.slice(0, i, i + 1).item<double>();
          require(std::abs(is - wanted.data<float>()[i]) <= types[t].second, fmt::format("{} of {}", is, step));
        }
      }
    }
  });
}

TEST(PowerSGD, AvailableBySpecAndByPyTorchType) {
  const auto group = single_rank_group();
  for (const auto type : {DDPCommHookType::POWER_SGD, DDPCommHookType::POWER_SGD_RANK2,
                          DDPCommHookType::BATCHED_POWER_SGD, DDPCommHookType::BATCHED_POWER_SGD_RANK2}) {
    const auto hook = std::dynamic_pointer_cast<PowerSGDHook>(make_hook(type, group));
    ASSERT_TRUE(hook);
    const bool two = type == DDPCommHookType::POWER_SGD_RANK2 || type == DDPCommHookType::BATCHED_POWER_SGD_RANK2;
    EXPECT_EQ(hook->state()->options().matrix_approximation_rank, two ? 2 : 1);
    EXPECT_EQ(hook->state()->options().start_powerSGD_iter, 1000);
  }
  const auto hook = std::dynamic_pointer_cast<PowerSGDHook>(
      make_hook("powersgd(rank=4, start_iter=7, min_compression_rate=0.5, error_feedback=false, warm_start=false, "
                "epsilon=1e-3, seed=9, wire=bf16)",
                group));
  const PowerSGDOptions options = hook->state()->options();
  EXPECT_EQ(options.matrix_approximation_rank, 4);
  EXPECT_EQ(options.start_powerSGD_iter, 7);
  EXPECT_EQ(options.min_compression_rate, 0.5);
  EXPECT_FALSE(options.use_error_feedback);
  EXPECT_FALSE(options.warm_start);
  EXPECT_EQ(options.orthogonalization_epsilon, 1e-3);
  EXPECT_EQ(options.random_seed, 9u);
  EXPECT_EQ(options.wire, DType::bf16);
  for (const char* text : {"powersgd(rank=0)", "powersgd(start_iter=1)", "powersgd(wire=int8)", "powersgd(seed=-1)",
                           "powersgd(epsilon=-1)", "powersgd(rate=2)", "batched_powersgd(rank=x)", "int8 | powersgd",
                           "powersgd(start_iter=0, error_feedback=false, warm_start=false) | error_feedback"}) {
    EXPECT_THROW(make_hook(text, group), InvalidArgument) << text;
  }
  EXPECT_THROW(PowerSGDHook(nullptr, false, group), InvalidArgument);
  EXPECT_THROW(PowerSGDHook(std::make_shared<PowerSGDState>()), InvalidArgument);
}

}  // namespace
}  // namespace hookline::testing
