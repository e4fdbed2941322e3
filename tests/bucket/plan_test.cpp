// Tests for the bucket plan: limits, dtypes, order, own_bucket and reduce_last.
#include <hookline/bucket/plan.hpp>

#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

using ::testing::ElementsAre;

PlannedParameter of(std::size_t bytes, DType dtype = DType::f32) { return {.bytes = bytes, .dtype = dtype}; }

TEST(Plan, ReverseOrderAndABucketClosesAfterReachingItsLimit) {
  const std::vector<PlannedParameter> p = {of(10), of(10), of(10), of(10), of(10)};
  EXPECT_THAT(plan_buckets(p, {.first_bucket_bytes = 15, .bucket_bytes = 30}),
              ElementsAre(ElementsAre(4, 3), ElementsAre(2, 1, 0)));
  EXPECT_THAT(plan_buckets(p, {.first_bucket_bytes = 10, .bucket_bytes = 20}),
              ElementsAre(ElementsAre(4), ElementsAre(3, 2), ElementsAre(1, 0)));
  EXPECT_THAT(plan_buckets(p, {.first_bucket_bytes = 0, .bucket_bytes = 0}).size(), 5u);
}

TEST(Plan, TheDefaultLimitsAreOneAndTwentyFiveMebibytes) {
  const std::size_t mib = std::size_t{1} << 20;
  const std::vector<PlannedParameter> p(60, of(mib));
  const auto plan = plan_buckets(p);
  ASSERT_EQ(plan.size(), 4u);
  EXPECT_EQ(plan[0].size(), 1u);
  EXPECT_EQ(plan[1].size(), 25u);
  EXPECT_EQ(plan[3].size(), 9u);
}

TEST(Plan, OneDtypePerBucketInFillOrder) {
  const std::vector<PlannedParameter> p = {of(8, DType::f64), of(10), of(8, DType::f64), of(10), of(4, DType::bf16)};
  EXPECT_THAT(plan_buckets(p, {.first_bucket_bytes = 100, .bucket_bytes = 100}),
              ElementsAre(ElementsAre(4), ElementsAre(3, 1), ElementsAre(2, 0)));
}

TEST(Plan, FollowsTheOrderAndOmitsMissingParameters) {
  const std::vector<PlannedParameter> p = {of(10), of(10), of(10), of(10)};
  const std::vector<std::size_t> order = {2, 0, 3};
  EXPECT_THAT(plan_buckets(p, order, {.first_bucket_bytes = 20, .bucket_bytes = 20}),
              ElementsAre(ElementsAre(2, 0), ElementsAre(3)));
}

TEST(Plan, OwnBucketsAndReduceLast) {
  std::vector<PlannedParameter> p = {of(1), of(1), of(1), of(1)};
  p[2].own_bucket = true;
  p[3].reduce_last = true;
  EXPECT_THAT(plan_buckets(p), ElementsAre(ElementsAre(2), ElementsAre(1, 0), ElementsAre(3)));
}

TEST(Plan, NoParametersGiveNoBuckets) { EXPECT_TRUE(plan_buckets(std::vector<PlannedParameter>{}).empty()); }

TEST(Plan, RejectsInvalidOrders) {
  const std::vector<PlannedParameter> p = {of(1), of(1)};
  EXPECT_THROW((void)plan_buckets(p, std::vector<std::size_t>{0, 2}), InvalidArgument);
  EXPECT_THROW((void)plan_buckets(p, std::vector<std::size_t>{1, 1}), InvalidArgument);
}

TEST(Plan, EveryParameterIsInOneBucketForAnyOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 50; ++round) {
    std::vector<PlannedParameter> p(1 + random() % 40);
    for (PlannedParameter& q : p) {
      q = {random() % 100, random() % 2 ? DType::f32 : DType::f16, random() % 7 == 0, random() % 5 == 0};
    }
    std::vector<std::size_t> order(p.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::shuffle(order.begin(), order.end(), random);
    std::vector<int> seen(p.size());
    for (const ParameterIndices& bucket : plan_buckets(p, order, {.first_bucket_bytes = 50, .bucket_bytes = 120})) {
      ASSERT_FALSE(bucket.empty());
      for (const std::size_t i : bucket) {
        ++seen[i];
        EXPECT_EQ(p[i].dtype, p[bucket[0]].dtype);
        EXPECT_EQ(p[i].reduce_last, p[bucket[0]].reduce_last);
        EXPECT_TRUE(!p[i].own_bucket || bucket.size() == 1);
      }
    }
    EXPECT_THAT(seen, ::testing::Each(1));
  }
}

}  // namespace
}  // namespace hookline
