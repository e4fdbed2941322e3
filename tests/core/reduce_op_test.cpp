// Tests for ReduceOp and the dtypes that it supports.
#include <hookline/core/reduce_op.hpp>

#include <limits>
#include <type_traits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

// Option structs have a ReduceOp member. If it had a destructor, gcc 12 would destroy an option struct twice in an
// expression with co_await.
static_assert(std::is_trivially_destructible_v<ReduceOp>);
static_assert(ReduceOp() == ReduceOp::sum);
static_assert(ReduceOp::avg.kind() == ReduceOp::Kind::avg);
static_assert(ReduceOp(ReduceOp::Kind::max, 3.0) == ReduceOp::max);

TEST(ReduceOp, PremulSumCarriesItsFactor) {
  EXPECT_EQ(ReduceOp::premul_sum(0.25).factor(), 0.25);
  EXPECT_EQ(ReduceOp::premul_sum(0.25), ReduceOp::premul_sum(0.25));
  EXPECT_FALSE(ReduceOp::premul_sum(0.25) == ReduceOp::premul_sum(0.5));
  EXPECT_FALSE(ReduceOp::premul_sum(1.0) == ReduceOp::sum);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(ReduceOp::premul_sum(nan), ReduceOp::premul_sum(nan));
}

TEST(ReduceOp, HasPyTorchNames) {
  EXPECT_EQ(name(ReduceOp::sum), "sum");
  EXPECT_EQ(name(ReduceOp::bxor), "bxor");
  EXPECT_EQ(name(ReduceOp::premul_sum(2)), "premul_sum");
}

TEST(ReduceOp, RejectsUnsupportedDTypes) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16}) {
    for (const ReduceOp op : {ReduceOp::band, ReduceOp::bor, ReduceOp::bxor})
      EXPECT_THROW(check(op, dtype), InvalidArgument);
    EXPECT_NO_THROW(check(ReduceOp::premul_sum(2), dtype));
    EXPECT_NO_THROW(check(ReduceOp::avg, dtype));
  }
  for (const DType dtype : {DType::i8, DType::u8, DType::i16, DType::i32, DType::i64}) {
    EXPECT_THROW(check(ReduceOp::premul_sum(2), dtype), InvalidArgument);
    EXPECT_NO_THROW(check(ReduceOp::avg, dtype));
    EXPECT_NO_THROW(check(ReduceOp::bxor, dtype));
  }
  EXPECT_THROW(check(ReduceOp::premul_sum(2), DType::boolean), InvalidArgument);
  EXPECT_THROW(check(ReduceOp::avg, DType::boolean), InvalidArgument);
  EXPECT_NO_THROW(check(ReduceOp::bor, DType::boolean));
}

TEST(ReduceOp, ErrorListsTheAllowedDTypes) {
  EXPECT_THAT(
      [] { check(ReduceOp::bxor, DType::bf16); },
      testing::ThrowsMessage<InvalidArgument>("ReduceOp bxor does not support bfloat16: expected integers and bool"));
}

}  // namespace
}  // namespace hookline
