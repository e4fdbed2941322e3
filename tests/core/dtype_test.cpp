// Tests for dtype names and for the 16-bit floats over all their values.
#include <hookline/core/dtype.hpp>

#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

TEST(DType, NamesAreParsedBack) {
  for (int i = 0; i < 10; ++i) EXPECT_EQ(parse_dtype(name(static_cast<DType>(i))), static_cast<DType>(i));
  EXPECT_EQ(parse_dtype("bf16"), DType::bf16);
  EXPECT_THROW(parse_dtype("complex64"), InvalidArgument);
}

// The value of a 16-bit float with `mantissa` mantissa bits and this bias, computed from its definition.
double exact_value(std::uint32_t bits, int mantissa, int bias) {
  const int exponent = static_cast<int>(bits & 0x7fff) >> mantissa;
  const int fraction = static_cast<int>(bits) & ((1 << mantissa) - 1);
  const double magnitude = exponent == 0 ? std::ldexp(fraction, 1 - bias - mantissa)
                                         : std::ldexp((1 << mantissa) + fraction, exponent - bias - mantissa);
  return bits & 0x8000 ? -magnitude : magnitude;
}

template <class Half>
void expect_every_value(int mantissa, int bias) {
  const std::uint32_t infinity = 0x7fffu & ~((1u << mantissa) - 1);
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    Half half;
    half.bits = static_cast<std::uint16_t>(bits);
    const float value = static_cast<float>(half);
    if ((bits & 0x7fff) > infinity) {
      ASSERT_TRUE(std::isnan(value));
      ASSERT_TRUE(std::isnan(static_cast<float>(Half(value))));
      continue;
    }
    ASSERT_EQ(Half(value).bits, bits) << "exactly representable values must round-trip";
    if ((bits & 0x7fff) == infinity) {
      ASSERT_TRUE(std::isinf(value));
      continue;
    }
    ASSERT_EQ(value, exact_value(bits, mantissa, bias)) << bits;

    // The midpoint to the next value rounds to even; its neighbours round to nearest. For the largest finite value, the
    // next value is the one that a larger exponent range would have.
    const double upper = exact_value(bits + 1, mantissa, bias);
    const double exact = (static_cast<double>(value) + upper) / 2;
    const auto middle = static_cast<float>(exact);
    if (middle != exact) continue;  // not representable as float
    const float outwards = std::copysign(std::numeric_limits<float>::infinity(), value);
    ASSERT_EQ(Half(middle).bits, bits + bits % 2) << bits;
    ASSERT_EQ(Half(std::nextafter(middle, 0.0f)).bits, bits);
    ASSERT_EQ(Half(std::nextafter(middle, outwards)).bits, bits + 1);
  }
}

TEST(Float16, EveryValueAndEveryMidpoint) { expect_every_value<Float16>(10, 15); }
TEST(BFloat16, EveryValueAndEveryMidpoint) { expect_every_value<BFloat16>(7, 127); }

TEST(Float16, NanAndOverflow) {
  EXPECT_EQ(Float16(std::bit_cast<float>(0x7fc06000u)).bits, 0x7e03);
  EXPECT_EQ(Float16(std::bit_cast<float>(0xff802000u)).bits, 0xfe01) << "keeps the sign and the upper payload bits";
  EXPECT_EQ(Float16(1e6f).bits, 0x7c00);
}

}  // namespace
}  // namespace hookline
