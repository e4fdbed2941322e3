// Compares casts with a double-precision reference: every target, sizes around vector widths, misaligned, streamed.
#include "kernel/cast.hpp"

#include <array>
#include <string>

#include <gtest/gtest.h>

#include "kernel/float_reference.hpp"

namespace hookline::kernel {
namespace {

constexpr std::array kDTypes = {DType::f16, DType::bf16};
using Bytes = std::vector<std::byte>;

class CastOnTarget : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(All, CastOnTarget, testing::ValuesIn(supported_targets().begin(), supported_targets().end()),
                         [](const auto& given) { return std::string(name(given.param)); });

Bytes narrowed(const std::vector<float>& values, DType dtype) {
  Bytes result(values.size() * 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t bits = bits_of(rounded(values[i], dtype), dtype);
    std::memcpy(&result[2 * i], &bits, 2);
  }
  return result;
}

// Casts to 16 bits and back with the 16-bit side misaligned by `off` bytes, and checks the guard bytes around it.
void expect_cast(Target target, DType dtype, const std::vector<float>& values, std::size_t off, StoreMode stores) {
  const std::size_t count = values.size();
  Bytes want(off + 2 * count + 64, std::byte{0xa5}), halves = want;
  const Bytes exact = narrowed(values, dtype);
  if (count) std::memcpy(&want[off], exact.data(), exact.size());
  narrow(dtype, values.data(), &halves[off], count, stores, target);
  ASSERT_TRUE(halves == want);

  std::vector<float> expected(count + 16, 7.0f), back = expected;
  for (std::size_t i = 0; i < count; ++i) expected[i] = rounded(values[i], dtype);
  widen(dtype, &halves[off], back.data(), count, stores, target);
  ASSERT_TRUE(same_bits(back, expected));

  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = values[count - 1 - i] + expected[i];
    back[i] = values[count - 1 - i];
    if (std::isnan(expected[i])) expected[i] = kNan;
  }
  widen_add(dtype, &halves[off], back.data(), count, target);
  ASSERT_TRUE(same_bits(back, expected));

  std::vector<float> backwards(values.rbegin(), values.rend());
  const Bytes second = narrowed(backwards, dtype);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = (rounded(values[i], dtype) + rounded(backwards[i], dtype)) * 0.3f;
    if (std::isnan(expected[i])) expected[i] = kNan;
  }
  widen_sum_two(dtype, &halves[off], second.data(), 0.3f, back.data(), count, target);
  ASSERT_TRUE(same_bits(back, expected));

  std::vector<float> sum(count), error(count), lost(count);
  for (std::size_t i = 0; i < count; ++i) {
    error[i] = i % 2 ? 0x1p-9f : -0.3f;
    sum[i] = values[i] + error[i];
    lost[i] = sum[i] - rounded(sum[i], dtype);
    if (!std::isfinite(lost[i])) lost[i] = 0;
  }
  const Bytes fed = narrowed(sum, dtype);
  if (count) std::memcpy(&want[off], fed.data(), fed.size());
  std::ranges::fill(halves, std::byte{0xa5});
  narrow_with_residual(dtype, values.data(), error.data(), &halves[off], count, target);
  ASSERT_TRUE(halves == want);
  ASSERT_TRUE(same_bits(error, lost));
}

TEST_P(CastOnTarget, AgreesWithTheReference) {
  std::mt19937 random(30);
  for (const DType dtype : kDTypes) {
    for (std::size_t count = 0; count <= 600; count += count < 150 ? 1 : 91) {
      for (const StoreMode stores : {StoreMode::cached, StoreMode::streaming}) {
        SCOPED_TRACE(std::string(name(dtype)) + ", " + std::to_string(count) + " elements");
        expect_cast(GetParam(), dtype, mixed_floats(count, random), count * 5 % 67, stores);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(CastOnTarget, WidensEvery16Bits) {
  Bytes all(65536 * 2);
  for (std::size_t i = 0; i < 65536; ++i) std::memcpy(&all[2 * i], &i, 2);
  for (const DType dtype : kDTypes) {
    std::vector<float> wide(65536);
    widen(dtype, all.data(), wide.data(), wide.size(), StoreMode::cached, GetParam());
    std::size_t nans = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      if (std::isnan(wide[i])) {
        ++nans;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), 0x7fc00000u) << i;
      } else {
        ASSERT_EQ(bits_of(wide[i], dtype), i);
      }
    }
    EXPECT_EQ(nans, dtype == DType::f16 ? 2 * 1023 : 2 * 127);
  }
}

TEST(Cast, RoundsTiesToEvenAndOverflowsToInfinity) {
  const std::vector<float> values = {1 + 0x1p-11f, 1 + 3 * 0x1p-11f, 65519.0f, 65520.0f, -1e6f, 0x1p-25f, 0x1.8p-25f};
  const std::vector<std::uint16_t> want = {0x3c00, 0x3c02, 0x7bff, 0x7c00, 0xfc00, 0, 1};
  std::vector<std::uint16_t> halves(values.size());
  narrow(DType::f16, values.data(), std::as_writable_bytes(std::span(halves)).data(), values.size());
  EXPECT_EQ(halves, want);
}

TEST(Cast, StreamsLargeResults) {
  std::mt19937 random(31);
  expect_cast(best_target(), DType::bf16, mixed_floats(kStreamThresholdBytes / 2 + 77, random), 3,
              StoreMode::automatic);
  expect_cast(best_target(), DType::f16, mixed_floats(kStreamThresholdBytes / 2 + 77, random), 2, StoreMode::automatic);
}

}  // namespace
}  // namespace hookline::kernel
