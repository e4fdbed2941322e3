// Tests sums and weighted means of compressed gradients.
#include <algorithm>
#include <functional>

#include <gtest/gtest.h>

#include <hookline/hook/registry.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

struct Case {
  const char* hook;
  double error;  ///< maximum error of a mean, relative to the largest weighted gradient
};

constexpr Case kCases[] = {{"fp16", 1.1e-3}, {"int8", 1.05 / 255}, {"int8 | error_feedback", 2.1 / 255}};

/// Runs steps and expects the sum over ranks of factor(rank) times the rank's gradient. Values are below 1, so the
/// compression error is bounded.
void expect_weighted(Reducer& reducer, const Case& test_case, const std::function<double(int rank)>& factor) {
  ProcessGroup& group = *reducer.group();
  double most = 0;
  for (int r = 0; r < group.size(); ++r) most = std::max(most, factor(r) * group.size());
  // One or two ranks encode once; more ranks also encode the mean.
  const double bound = test_case.error * most * (group.size() > 2 ? 2 : 1);
  const std::size_t count = reducer.parameters().size();
  for (std::uint64_t s = 1; s <= 3; ++s) {
    std::vector<Tensor> gradients;
    for (std::size_t p = 0; p < count; ++p) {
      gradients.push_back(gradient_like(reducer.parameters()[p], group.rank(), p, s));
      reducer.mark_ready(p, gradients[p]);
    }
    reducer.finalize();
    for (std::size_t p = 0; p < count; ++p) {
      for (std::int64_t i = 0; i < gradients[p].numel(); ++i) {
        double wanted = 0;
        for (int r = 0; r < group.size(); ++r) wanted += factor(r) * gradient_of(r, p, s, i);
        ASSERT_NEAR(gradients[p].data<float>()[i], wanted, bound)
            << test_case.hook << ", step " << s << ", element " << i;
      }
    }
  }
}

class CompressedMeans : public ::testing::TestWithParam<GroupFixture> {};

TEST_P(CompressedMeans, Sums) {
  for (const int ranks : {1, 2, 3}) {
    GetParam().spawn(ranks, [](ProcessGroup& group) {
      for (const Case& what : kCases) {
        Reducer reducer(
            model(6), group.shared_from_this(), make_hook(what.hook, group.shared_from_this()),
            {.limits = {.first_bucket_bytes = 500, .bucket_bytes = 1000}, .reduction = GradientReduction::sum});
        expect_weighted(reducer, what, [](int) { return 1.0; });
      }
    });
  }
}

TEST_P(CompressedMeans, WeightedMeans) {
  for (const int ranks : {2, 3}) {
    GetParam().spawn(ranks, [](ProcessGroup& group) {
      for (const Case& what : kCases) {
        Reducer reducer(model(6), group.shared_from_this(), make_hook(what.hook, group.shared_from_this()),
                        {.limits = {.first_bucket_bytes = 500, .bucket_bytes = 1000}});
        const int all = group.size() * (group.size() + 1) / 2;
        reducer.set_weight(group.rank() + 1);
        expect_weighted(reducer, what, [all](int r) { return (r + 1.0) / all; });
        reducer.set_weight(group.rank() == 0 ? 0 : 32);  // a rank whose batch is empty
        const double other_ranks = group.size() - 1;
        // The residual belongs to the previous weights, so use a new hook.
        reducer.replace_hook(make_hook(what.hook, group.shared_from_this()));
        expect_weighted(reducer, what, [other_ranks](int r) { return r == 0 ? 0 : 1 / other_ranks; });
      }
    });
  }
}

TEST_P(CompressedMeans, WeightedSums) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    for (const Case& what : kCases) {
      Reducer reducer(model(6), group.shared_from_this(), make_hook(what.hook, group.shared_from_this()),
                      {.reduction = GradientReduction::sum});
      reducer.set_weight(group.rank() == 0 ? 1 : 3);
      expect_weighted(reducer, what, [](int r) { return r == 0 ? 0.5 : 1.5; });
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, CompressedMeans, ::testing::Values(threads_fixture(), shm_fixture()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
