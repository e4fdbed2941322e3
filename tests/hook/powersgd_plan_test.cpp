// Tests the PowerSGD plan and its options.
#include "hook/powersgd_plan.hpp"

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline::hook {
namespace {

using ::testing::HasSubstr;

PowerSGDPlan plan_of(std::vector<Dims> sizes, const PowerSGDOptions& options = {}) {
  return plan_matrices(layout_of(std::move(sizes)), 7, options);
}

TEST(PowerSGDPlan, CompressesMatricesAboveMinimumRate) {
  const auto plan = plan_of({Dims{100, 50}, Dims{100}, Dims{}, Dims{4, 4}, Dims{8, 4, 25}, Dims{1, 1000}, Dims{0, 3}});
  ASSERT_EQ(plan.matrices.size(), 2u);
  EXPECT_EQ(plan.matrices[0].name, "gradient 0 of bucket 7");
  EXPECT_EQ(plan.matrices[1].rows, 8u);
  EXPECT_EQ(plan.matrices[1].columns, 100u);
  EXPECT_EQ(plan.matrices[1].offset, 5000u + 100 + 1 + 16);
  EXPECT_EQ(plan.matrices[1].p_offset, 100u);
  EXPECT_EQ(plan.matrices[1].q_offset, 50u);
  EXPECT_EQ(plan.p_size, 108u);
  EXPECT_EQ(plan.q_size, 150u);
  EXPECT_EQ(plan.uncompressed.size(), 5u);
  EXPECT_EQ(plan.uncompressed_size, 100u + 1 + 16 + 1000);
  EXPECT_EQ(plan.numel_before, 5000u + 100 + 1 + 16 + 800 + 1000);
  EXPECT_EQ(plan.numel_after, 150u + 108 + plan.uncompressed_size);
}

TEST(PowerSGDPlan, RankIsAtMostTheSmallerSide) {
  const auto plan = plan_of({Dims{3, 50}, Dims{1, 9}}, {.matrix_approximation_rank = 64, .min_compression_rate = 0});
  ASSERT_EQ(plan.matrices.size(), 2u);
  EXPECT_EQ(plan.matrices[0].rank, 3u);
  EXPECT_EQ(plan.matrices[1].rank, 1u);
  EXPECT_EQ(plan.numel_after, 53u * 3 + 10);
}

TEST(PowerSGDPlan, MinimumRateDecides) {
  const PowerSGDOptions options{.min_compression_rate = 5};
  EXPECT_TRUE(plan_of({Dims{10, 10}}, options).matrices.empty());  // a rate of exactly 5 is not enough
  EXPECT_EQ(plan_of({Dims{11, 10}}, options).matrices.size(), 1u);
}

TEST(PowerSGDPlan, BucketAsOneSquareMatrix) {
  for (const std::size_t count : {1U, 2U, 4U, 5U, 9U, 10U, 12U, 90U, 100U, 101U}) {
    const auto plan = plan_square(count, 2, {.matrix_approximation_rank = 3});
    ASSERT_EQ(plan.matrices.size(), 1u);
    const PowerSGDMatrix& m = plan.matrices[0];
    const auto side = static_cast<std::size_t>(std::ceil(std::sqrt(static_cast<double>(count))));
    EXPECT_EQ(m.rows, side);
    EXPECT_EQ(m.columns, side);
    EXPECT_EQ(m.rank, std::min<std::size_t>(3, side));
    EXPECT_EQ(m.full_rows().rows * side + m.partial_row().rows * m.partial_row().columns, count);
    EXPECT_EQ(plan.numel_after, 2 * side * m.rank);
  }
  EXPECT_TRUE(plan_square(0, 0, {}).matrices.empty());
}

std::string message(const PowerSGDOptions& options) {
  try {
    check(options);
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "";
}

TEST(PowerSGDPlan, RejectsOptionsOutOfRange) {
  EXPECT_EQ(message({}), "");
  EXPECT_THAT(message({.matrix_approximation_rank = 0}), HasSubstr("expected at least 1, got 0"));
  EXPECT_THAT(message({.start_powerSGD_iter = 1}),
              HasSubstr("Expect `start_powerSGD_iter` > 1 if `use_error_feedback` or `warm_start` is enabled, because "
                        "PowerSGD can only be applied after the first two iterations in DDP."));
  EXPECT_NE(message({.start_powerSGD_iter = 1, .use_error_feedback = false}), "");
  EXPECT_EQ(message({.start_powerSGD_iter = 0, .use_error_feedback = false, .warm_start = false}), "");
  EXPECT_THAT(message({.start_powerSGD_iter = -1, .use_error_feedback = false, .warm_start = false}),
              HasSubstr("at least 0"));
  EXPECT_THAT(message({.min_compression_rate = -1}),
              HasSubstr("min_compression_rate: expected a number of at least 0, got -1"));
  EXPECT_NE(message({.min_compression_rate = std::nan("")}), "");
  EXPECT_THAT(message({.orthogonalization_epsilon = -0.5}),
              HasSubstr("orthogonalization_epsilon: expected a number of at least 0, got -0.5"));
  EXPECT_THAT(message({.wire = DType::i8}), HasSubstr("float32, float16 or bfloat16"));
}

}  // namespace
}  // namespace hookline::hook
