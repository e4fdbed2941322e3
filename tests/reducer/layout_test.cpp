// Tests ReducerOptions::buckets: fixed buckets are kept, compared across ranks and validated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/reducer/reducer.hpp>

#include "harness/spawn.hpp"
#include "reducer/model.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;
using Buckets = std::vector<ParameterIndices>;

ReducerOptions with_buckets(Buckets buckets) {
  ReducerOptions options;
  options.buckets = std::move(buckets);
  return options;
}

TEST(BucketsOption, AreKept) {
  for (const GroupFixture& fixture : {threads_fixture(), shm_fixture()}) {
    fixture.spawn(2, [](ProcessGroup& group) {
      const Buckets buckets = {{1}, {4, 0, 3}, {2}};
      Reducer reducer(model(5), group.shared_from_this(), nullptr, with_buckets(buckets));
      for (std::uint64_t s = 1; s <= 3; ++s) {
        step_with_copies(reducer, s, reverse_order(5));
        EXPECT_EQ(reducer.buckets(), buckets);
        EXPECT_FALSE(reducer.stats().rebuilt);
      }
    });
  }
}

TEST(BucketsOption, RejectsInvalidBuckets) {
  threads_fixture().spawn(1, [](ProcessGroup& group) {
    std::vector<Parameter> parameters = model(3);
    parameters.push_back({"double", Tensor::zeros({2}, DType::f64)});
    parameters.push_back({"rows", Tensor::zeros({10, 2}), true});
    parameters.push_back({"left", Tensor::zeros({2}), false, true});
    const auto error_of = [&](Buckets buckets) -> std::string {
      try {
        const Reducer reducer(parameters, group.shared_from_this(), nullptr, with_buckets(std::move(buckets)));
      } catch (const InvalidArgument& e) {
        return e.what();
      }
      return "";
    };
    EXPECT_EQ(error_of({{0, 1, 2}, {3}, {4}}), "");
    EXPECT_THAT(error_of({{0, 1, 2}, {3}}), HasSubstr("'rows' is in none of the 2 buckets"));
    EXPECT_THAT(error_of({}), HasSubstr("'p0' is in none of the 0 buckets"));
    EXPECT_THAT(error_of({{0, 1, 2}, {3}, {4}, {}}), HasSubstr("bucket 3 has no parameters"));
    EXPECT_THAT(error_of({{0, 1}, {2, 0}, {3}, {4}}), HasSubstr("'p0' appears twice, again in bucket 1"));
    EXPECT_THAT(error_of({{0, 1, 2, 9}, {3}, {4}}), HasSubstr("expected 0 to 5, got 9"));
    EXPECT_THAT(error_of({{0, 1, 2}, {3}, {4}, {5}}), HasSubstr("'left', which is ignored"));
    EXPECT_THAT(error_of({{0, 1, 2, 3}, {4}}), HasSubstr("'p0' of float32 and 'double' of float64"));
    EXPECT_THAT(error_of({{0, 1, 2, 4}, {3}}), HasSubstr("'rows', which is sparse"));
  });
}

TEST(BucketsOption, AreComparedAcrossRanks) {
  threads_fixture().spawn(2, [](ProcessGroup& group) {
    const Buckets mine = group.rank() == 0 ? Buckets{{0, 1, 2}} : Buckets{{2, 1, 0}};
    try {
      const Reducer reducer(model(3), group.shared_from_this(), nullptr, with_buckets(mine));
      FAIL() << "different buckets were accepted";
    } catch (const Mismatch& e) {
      EXPECT_THAT(e.what(), HasSubstr("rank 0 has buckets [[0, 1, 2]], rank 1 has buckets [[2, 1, 0]]"));
    }
  });
}

}  // namespace
}  // namespace hookline::testing
