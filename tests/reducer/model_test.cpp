// Tests the model check, the parameter broadcast and step ids.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ModelCheck : public ::testing::TestWithParam<GroupFixture> {};

TEST_P(ModelCheck, BroadcastsFrozenParametersAndBuffers) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = model(3);
    parameters[1].frozen = true;
    const Tensor buffer = Tensor::full({5}, group.rank() + 1);
    parameters[1].tensor.fill(group.rank() + 1);
    Reducer reducer(parameters, group.shared_from_this(), nullptr,
                    {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}, .buffers = {{"mean", buffer}}});
    EXPECT_EQ(parameters[1].tensor.data<float>()[0], 1.0f);
    EXPECT_EQ(buffer.data<float>()[0], 1.0f);
    EXPECT_THAT(reducer.buckets(), ::testing::ElementsAre(ParameterIndices{2}, ParameterIndices{0}));
    EXPECT_THAT(message_of<InvalidArgument>([&] { reducer.mark_ready("p1"); }), HasSubstr("'p1' is frozen"));
    for (std::uint64_t s = 1; s <= 2; ++s) step_with_copies(reducer, s, {2, 0});
  });
}

TEST_P(ModelCheck, ComparesFrozenParametersAndBuffers) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    const auto make = [&](const Tensor& frozen, const Tensor& buffer) {
      std::vector<Parameter> parameters = model(2);
      parameters[1] = {.name = "body", .tensor = frozen, .frozen = true};
      const Reducer reducer(parameters, group.shared_from_this(), nullptr, {.buffers = {{"bn.running_mean", buffer}}});
    };
    EXPECT_THAT(
        message_of<Mismatch>([&] { make(Tensor::zeros({3 + group.rank()}), Tensor::zeros({1})); }),
        HasSubstr("rank 0 has parameter 'body' float32[3] frozen, rank 1 has parameter 'body' float32[4] frozen"));
    EXPECT_THAT(message_of<Mismatch>([&] { make(Tensor::zeros({3}), Tensor::zeros({10 + 10 * group.rank()})); }),
                HasSubstr("rank 0 has buffer 'bn.running_mean' float32[10], rank 1 has buffer 'bn.running_mean' "
                          "float32[20]"));
  });
}

TEST(ModelCheck, RejectsModelsOfFrozenParametersOnly) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = model(1);
    parameters[0].frozen = true;
    EXPECT_THROW(Reducer(parameters, group.shared_from_this()), InvalidArgument);
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, ModelCheck, ::testing::Values(threads_fixture(), shm_fixture()),
                         [](const auto& test) { return test.param.name; });

class StepIds : public ::testing::TestWithParam<GroupFixture> {};

TEST_P(StepIds, DifferentIdsRaiseMismatchBeforeGradientsChange) {
  for (const char* text : {"allreduce", "int8 | error_feedback", "powersgd(rank=1, start_iter=2)"}) {
    GetParam().spawn(3, [&](ProcessGroup& group) {
      Reducer reducer(model(4), group.shared_from_this(), make_hook(text, group.shared_from_this()),
                      {.limits = {.first_bucket_bytes = 1, .bucket_bytes = 1}});
      EXPECT_EQ(reducer.step_id(), std::nullopt);
      const auto step = [&] {
        const Tensor gradient = Tensor::full(reducer.parameters()[3].tensor.shape(), group.rank());
        reducer.mark_ready(3, gradient);
        for (std::size_t p = 0; p < 3; ++p) reducer.mark_ready(p);
        try {
          reducer.finalize();
        } catch (...) {
          EXPECT_EQ(gradient.data<float>()[0], static_cast<float>(group.rank()));
          throw;
        }
      };
      for (const std::int64_t id : {0, 41, 7}) {
        reducer.set_step_id(id);
        step();
      }
      reducer.set_step_id(group.rank() == 1 ? 4294967295 : 8);
      EXPECT_THAT(message_of<Mismatch>(step), AllOf(HasSubstr("bucket 0 of 4 in step 4"), HasSubstr("rank 0: "),
                                                    HasSubstr("step 4, bucket 0, step_id 8"), HasSubstr("rank 1: "),
                                                    HasSubstr("step_id 4294967295")));
    });
  }
}

TEST_P(StepIds, IdOnOneRankOnlyRaisesMismatch) {
  GetParam().spawn(2, [](ProcessGroup& group) {
    Reducer reducer(model(1), group.shared_from_this());
    if (group.rank() == 1) reducer.set_step_id(3);
    reducer.mark_ready(0);
    EXPECT_THAT(message_of<Mismatch>([&] { reducer.finalize(); }),
                AllOf(HasSubstr("(step 1, bucket 0); rank 1"), HasSubstr("step_id 3")));
  });
}

TEST_P(StepIds, RanksWithoutInputsTakeIdOfTheOthers) {
  GetParam().spawn(3, [](ProcessGroup& group) {
    Reducer reducer(model(1), group.shared_from_this());
    reducer.set_step_id(99);
    reducer.join([&] {
      for (int s = 0; s <= group.rank(); ++s) {
        reducer.set_step_id(s);
        const Tensor gradient = Tensor::full({40, 1}, 3);
        reducer.mark_ready(0, gradient);
        reducer.finalize();
        EXPECT_EQ(gradient.data<float>()[0], static_cast<float>(3 - s));
      }
    });
  });
}

TEST(StepIds, AreLimitedTo32Bits) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    Reducer reducer(model(1), group.shared_from_this());
    for (const std::int64_t bad : {std::int64_t{-1}, std::int64_t{1} << 32}) {
      EXPECT_THAT(message_of<InvalidArgument>([&] { reducer.set_step_id(bad); }), HasSubstr("from 0 to 4294967295"));
    }
    reducer.set_step_id(3);
    EXPECT_EQ(reducer.step_id(), 3);
    reducer.set_step_id(std::nullopt);
    EXPECT_EQ(reducer.step_id(), std::nullopt);
  });
}

INSTANTIATE_TEST_SUITE_P(Fixtures, StepIds, ::testing::Values(threads_fixture(), shm_fixture()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace hookline::testing
