// Tests Optimizer::step(Reducer): equivalence with steps of single parameters, unused and sparse ones, and misuse.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/optimizer/optimizer.hpp>
#include <hookline/optimizer/post_local_sgd_optimizer.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;

const BucketLimits kSmall{.first_bucket_bytes = 500, .bucket_bytes = 1000};

void require_equal(const Tensor& a, const Tensor& b, const std::string& what) {
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    require(a.data<float>()[i] == b.data<float>()[i], what + ", element " + std::to_string(i));
  }
}

TEST(StepOptimizer, StepsAllParametersByTheirMeans) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const std::vector<Parameter> parameters = model(7);
    Reducer reducer(parameters, group.shared_from_this(), nullptr, {.limits = kSmall});
    const OptimizerPtr whole = make_optimizer("adam(lr=0.1)");
    const OptimizerPtr single = make_optimizer("adam(lr=0.1)");
    std::vector<Tensor> expected;
    for (const Parameter& p : parameters) expected.push_back(p.tensor.clone());
    const auto first_plan = reducer.buckets();
    for (std::uint64_t s = 1; s <= 3; ++s) {
      std::vector<Tensor> gradients(7);
      for (const std::size_t p : {2U, 0U, 6U, 1U, 3U, 5U, 4U}) {
        gradients[p] = gradient_like(parameters[p], group.rank(), p, s);
        reducer.mark_ready(p, gradients[p]);
      }
      reducer.finalize();
      whole->step(reducer, 0.5);
      for (std::size_t p = 0; p < 7; ++p) single->step(parameters[p].name, expected[p], gradients[p], 0.5);
      for (std::size_t p = 0; p < 7; ++p) require_equal(parameters[p].tensor, expected[p], parameters[p].name);
    }
    require(reducer.buckets() != first_plan, "reading the gradients must not prevent the rebuild");
  });
}

TEST(StepOptimizer, LeavesUnusedParametersAlone) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = model(4);
    parameters.push_back({.name = "frozen", .tensor = Tensor::full({3}, 1), .frozen = true});
    Reducer reducer(parameters, group.shared_from_this(), nullptr, {.find_unused_parameters = true});
    const OptimizerPtr sgd = make_optimizer("sgd(lr=1, momentum=0.9, weight_decay=0.1)");
    parameters[1].tensor.fill(5);
    parameters[2].tensor.fill(6);
    for (const std::size_t p : {3U, 0U}) reducer.mark_ready(p, gradient_like(parameters[p], group.rank(), p, 1));
    if (group.rank() == 0) reducer.mark_ready(1, Tensor::full(parameters[1].tensor.shape(), 2));
    reducer.finalize();
    sgd->step(reducer);
    require(std::abs(parameters[1].tensor.data<float>()[0] - 3.5F) < 1e-6F, "used on rank 0: 5 - (2 / 2 + 0.1 * 5)");
    require(parameters[2].tensor.data<float>()[0] == 6, "p2 is unused on all ranks");
    require(!sgd->state().contains("p2") && !sgd->state().contains("frozen"), "no state of parameters without a step");
    require(sgd->state().at("p1").step == 1, "p1 was updated");
  });
}

TEST(StepOptimizer, RejectsSparseParametersBeforeAnyStep) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    const std::vector<Parameter> parameters = {{"w", Tensor::full({2}, 1)}, {"rows", Tensor::zeros({9, 2}), true}};
    Reducer reducer(parameters, group.shared_from_this());
    reducer.mark_ready("w", Tensor::full({2}, 1));
    const Tensor indices = Tensor::zeros({1}, DType::i64);
    reducer.mark_ready("rows", SparseGradient{indices, Tensor::full({1, 2}, 1)});
    reducer.finalize();
    const OptimizerPtr sgd = make_optimizer("sgd(lr=1)");
    EXPECT_THAT(message_of<Unsupported>([&] { sgd->step(reducer); }),
                HasSubstr("sgd: parameter 'rows' has sparse gradients"));
    EXPECT_EQ(parameters[0].tensor.data<float>()[0], 1.0F);
    sgd->step(reducer.reduced_gradients());  // the alternative that the message suggests
    EXPECT_EQ(parameters[0].tensor.data<float>()[0], 0.0F);
  });
}

TEST(StepOptimizer, RejectsGradientsThatAreNotReduced) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    Reducer reducer(model(2), group.shared_from_this());
    const OptimizerPtr sgd = make_optimizer("sgd");
    const auto rejected = [&](const char* text) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { sgd->step(reducer); }), HasSubstr(text));
    };
    rejected("the gradients are not reduced");
    const auto mark_all = [&] {
      for (const std::size_t p : {1U, 0U}) reducer.mark_ready(p, gradient_like(reducer.parameters()[p], 0, p, 1));
    };
    mark_all();
    rejected("is not allowed inside a step");
    reducer.finalize();
    sgd->step(reducer);
    {
      const auto guard = reducer.no_sync();
      mark_all();
      reducer.finalize();
    }
    rejected("the gradients are not reduced");
    mark_all();
    reducer.finalize();
    sgd->step(reducer);
    EXPECT_EQ(sgd->state().at("p0").step, 2U);
  });
}

TEST(StepOptimizer, PostLocalSGDAveragesAfterTheStep) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const std::vector<Parameter> parameters = model(2);
    Reducer reducer(parameters, group.shared_from_this(), "noop");  // the ranks' gradients stay different
    PostLocalSGDOptimizer optimizer(make_optimizer("sgd(lr=1)"),
                                    std::make_shared<PeriodicModelAverager>(2, 0, group.shared_from_this()));
    const auto step = [&] {
      for (const std::size_t p : {1U, 0U}) {
        reducer.mark_ready(p, Tensor::full(parameters[p].tensor.shape(), 1 + group.rank()));
      }
      reducer.finalize();
      optimizer.step(reducer);
    };
    step();
    require(parameters[1].tensor.data<float>()[0] == -1.5F, "step 0 averages");
    step();
    require(parameters[1].tensor.data<float>()[0] == -2.5F - static_cast<float>(group.rank()), "step 1 does not");
  });
}

TEST(ReducerHook, IsASpecOrAnObject) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(3), group.shared_from_this(), "fp16");
    for (const std::size_t p : reverse_order(3))
      reducer.mark_ready(p, Tensor::full({40, static_cast<std::int64_t>(p + 1)}, 1 + group.rank()));
    reducer.finalize();
    EXPECT_EQ(reducer.gradient(1).data<float>()[7], 1.5F);
    EXPECT_EQ(reducer.stats().hook, "fp16");
    reducer.replace_hook("allreduce");
    step_with_copies(reducer, 2, reverse_order(3));
    EXPECT_EQ(reducer.stats().hook, "allreduce");
    reducer.replace_hook(make_hook("noop", group.shared_from_this()));
    EXPECT_EQ(reducer.hook()->name(), "noop");
    reducer.replace_hook(nullptr);
    EXPECT_EQ(reducer.hook()->name(), "allreduce");
    EXPECT_THROW(reducer.replace_hook("no_such_hook"), InvalidArgument);
    EXPECT_EQ(reducer.hook()->name(), "allreduce") << "unchanged";
    EXPECT_THROW(Reducer(model(1), group.shared_from_this(), "int8(no_such_option=1)"), InvalidArgument);
  });
}

}  // namespace
}  // namespace hookline::testing
