// Tests for model averagers: schedule, groups and bitwise results.
#include <hookline/optimizer/model_averager.hpp>

#include <cmath>
#include <numeric>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/optimizer/post_local_sgd_optimizer.hpp>

#include "group/rank_threads.hpp"
#include "harness/spawn.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;

float weight(int rank, std::int64_t i) {
  return static_cast<float>(std::sin(static_cast<double>(1 + rank) * static_cast<double>(i + 3)));
}

Tensor weights(int rank, const Dims& shape, DType dtype = DType::f32) {
  const Tensor t = Tensor::empty(shape, dtype);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    if (dtype == DType::f64) t.data<double>()[i] = weight(rank, i);
    else t.data<float>()[i] = weight(rank, i);
  }
  return t;
}

std::vector<float> values(const Tensor& t) {
  const Tensor flat = t.contiguous().flatten();
  return {flat.data<const float>(), flat.data<const float>() + flat.numel()};
}

void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

/// The float32 mean over ranks `first` to `first + count - 1`, summed in rank order.
std::vector<float> mean(int first, int count, std::int64_t elements) {
  std::vector<float> result;
  for (std::int64_t i = 0; i < elements; ++i) {
    float sum = weight(first, i);
    for (int r = 1; r < count; ++r) sum += weight(first + r, i);
    result.push_back(sum / static_cast<float>(count));
  }
  return result;
}

TEST(AverageParameters, OfMixedSizesDtypesAndLayouts) {
  for (const GroupFixture& world : {threads_fixture(), shm_fixture()}) {
    world.spawn(4, [](ProcessGroup& group) {
      const int r = group.rank();
      const Tensor wide = weights(r, {10, 6});
      const Tensor large = weights(r, {600, 500});  // larger than a packed buffer
      const std::vector<Tensor> all = {weights(r, {}),
                                       weights(r, {7, 3}),
                                       large,
                                       weights(r, {0, 5}),
                                       weights(r, {9}, DType::f64),
                                       wide.slice(1, 0, 6, 2),
                                       weights(r, {200'000}),
                                       weights(r, {100'000}, DType::f32)};
      const Tensor between = wide.slice(1, 1, 6, 2).clone();
      const std::vector<float> strided_before = values(all[5]);
      average_parameters(group, all);
      require(values(all[0]) == mean(0, 4, 1), "the number");
      require(values(all[1]) == mean(0, 4, 21), "the matrix");
      require(values(large) == mean(0, 4, 300'000), "the large one");
      require(values(all[6]) == mean(0, 4, 200'000), "the long one");
      require(values(all[7]) == mean(0, 4, 100'000), "the other long one");
      require(std::abs(all[4].slice(0, 8, 9).item<double>() - mean(0, 4, 9)[8]) < 1e-6, "float64");
      require(values(wide.slice(1, 1, 6, 2)) == values(between), "what lies between");
      require(values(all[5]) != strided_before, "the strided one");
      const std::vector<float> whole = mean(0, 4, 60);
      require(values(all[5])[1] == whole[2], "the strided one's second");
    });
  }
}

TEST(PeriodicAverager, AveragesEveryPeriodAfterWarmup) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    PeriodicModelAverager averager(3, 2, group.shared_from_this());
    std::vector<bool> averaged;
    for (int s = 0; s < 9; ++s) {
      const Tensor t = weights(group.rank(), {5});
      averaged.push_back(averager.average_parameters({t}));
      require(values(t) == (averaged.back() ? mean(0, 2, 5) : values(weights(group.rank(), {5}))), "the values");
    }
    require(averaged == std::vector<bool>{false, false, true, false, false, true, false, false, true}, "the steps");
    require(averager.step() == 9, "the counter");
    averager.set_step(2);
    require(averager.average_parameters({weights(group.rank(), {5})}), "the step that was set");
  });
}

TEST(HierarchicalAverager, AveragesPairsAndAllOfFourRanks) {
  for (const GroupFixture& world : {threads_fixture(), shm_fixture()}) {
    world.spawn(4, [](ProcessGroup& group) {
      HierarchicalModelAverager averager({{2, 2}, {4, 4}}, 1, group.shared_from_this());
      const int pair = group.rank() / 2 * 2;
      for (int s = 0; s < 9; ++s) {
        const Tensor t = weights(group.rank(), {17});
        averager.average_parameters({t});
        std::vector<float> wanted = values(weights(group.rank(), {17}));
        if (s >= 1 && s % 2 == 0) wanted = mean(pair, 2, 17);
        if (s >= 1 && s % 4 == 0) wanted = mean(0, 4, 17);
        require(values(t) == wanted, "step " + std::to_string(s));
      }
      require(averager.period_groups()[0].second->size() == 2, "the size of the pairs");
    });
  }
}

TEST(Averagers, RejectInvalidArguments) {
  const Groups groups = make_thread_groups(1);
  const auto message = [&](auto make) -> std::string {
    try {
      make();
    } catch (const InvalidArgument& e) {
      return e.what();
    }
    return "nothing was thrown";
  };
  using Levels = std::vector<HierarchicalModelAverager::Level>;
  const auto periodic = [&](int period, int warmup) {
    return message([&] { PeriodicModelAverager(period, warmup, groups[0]); });
  };
  const auto hierarchical = [&](const Levels& levels) {
    return message([&] { HierarchicalModelAverager(levels, 0, groups[0]); });
  };
  EXPECT_THAT(periodic(0, 0), HasSubstr("Arg ``period`` must be a positive value. Got 0."));
  EXPECT_THAT(periodic(1, -1), HasSubstr("Arg ``warmup_steps`` must be a non-negative number. Got -1."));
  EXPECT_THAT(message([] { PeriodicModelAverager(1, 0, nullptr); }), HasSubstr("group must not be null"));
  EXPECT_THAT(hierarchical({}), HasSubstr("Arg ``period_group_size_dict`` must not be empty."));
  EXPECT_THAT(hierarchical({{0, 1}}), HasSubstr("The minimum period in arg ``period_group_size_dict`` must be"));
  EXPECT_THAT(hierarchical({{4, 1}, {2, 1}}), HasSubstr("must be ascending: 2 follows 4"));
  EXPECT_THAT(hierarchical({{2, 2}}), HasSubstr("must divide the 1 ranks"));
  const std::vector<std::string> errors = on_ranks(make_thread_groups(2), [](ProcessGroup& group, int) {
    HierarchicalModelAverager({{2, 1}}, 0, group.shared_from_this());
  });
  EXPECT_THAT(errors[0],
              HasSubstr("The last value in arg ``period_group_size_dict`` 1 must be equal to the size of arg "
                        "``process_group`` 2."));
  EXPECT_THROW(average_parameters(*groups[0], {Tensor::zeros({2}).as_read_only()}), InvalidArgument);
}

// With SGD and a period of 1, averaging parameters is equivalent to averaging gradients.
TEST(PostLocalSGD, PeriodOneMatchesGradientAveraging) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const auto shared = group.shared_from_this();
    PostLocalSGDOptimizer local(make_optimizer("sgd(lr=0.1)"), std::make_shared<PeriodicModelAverager>(1, 0, shared));
    const OptimizerPtr plain = make_optimizer("sgd(lr=0.1)");
    const Tensor own = weights(0, {33});
    const Tensor exact = weights(0, {33});
    for (int s = 0; s < 20; ++s) {
      const Tensor gradient = weights(group.rank() + s, {33});
      local.step({{"p", own, gradient}});
      group.allreduce(gradient, {.op = ReduceOp::avg})->wait();
      plain->step("p", exact, gradient);
      for (std::int64_t i = 0; i < 33; ++i) {
        require(std::abs(values(own)[static_cast<std::size_t>(i)] - values(exact)[static_cast<std::size_t>(i)]) < 1e-6,
                "step " + std::to_string(s));
      }
    }
  });
}

TEST(PostLocalSGD, ResumesItsCounters) {
  const Groups groups = make_thread_groups(1);
  const auto make = [&] {
    return PostLocalSGDOptimizer(make_optimizer("sgd(lr=0.1, momentum=0.9)"),
                                 std::make_shared<PeriodicModelAverager>(4, 2, groups[0]));
  };
  PostLocalSGDOptimizer first = make();
  for (int s = 0; s < 5; ++s) first.step({{"p", weights(0, {3}), weights(1, {3})}});
  const std::vector<std::byte> saved = save_state(first);
  PostLocalSGDOptimizer second = make();
  EXPECT_THROW(load_state(second, save_state(*first.optimizer())), InvalidArgument) << "the state of an SGD";
  EXPECT_THROW(load_state(second, std::span(saved).first(saved.size() - 1)), InvalidArgument);
  load_state(second, saved);
  EXPECT_EQ(second.averager()->step(), 5u);
  EXPECT_EQ(second.optimizer()->state().at("p").step, 5u);
  EXPECT_THROW(PostLocalSGDOptimizer(nullptr, first.averager()), InvalidArgument);
  EXPECT_THROW(PostLocalSGDOptimizer(first.optimizer(), nullptr), InvalidArgument);
}

}  // namespace
}  // namespace hookline::testing
