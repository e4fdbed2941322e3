// Tests for the search for NaN and infinities: every dtype, target and position.
#include "kernel/find_nonfinite.hpp"

#include <array>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace hookline::kernel {
namespace {

template <class T>
void expect_found(std::size_t count) {
  std::vector<T> x(count + 1, T(std::numeric_limits<float>::denorm_min()));
  const auto find = [&](Target target) {
    return find_nonfinite(dtype_of<T>, std::as_bytes(std::span(x)).data(), count, target);
  };
  for (const Target target : supported_targets()) ASSERT_EQ(find(target), count) << name(target);
  const float inf = std::numeric_limits<float>::infinity();
  const std::array<T, 4> bad = {T(std::numeric_limits<float>::quiet_NaN()), T(inf), T(-inf),
                                T(-std::numeric_limits<float>::quiet_NaN())};
  for (std::size_t at = 0; at <= count; at += 1 + at / 17) {
    const T before = x[at];
    x[at] = bad[at % 4];
    for (const Target target : supported_targets()) ASSERT_EQ(find(target), at) << name(target);
    x[at] = before;
  }
}

TEST(FindNonfinite, FindsTheFirstAtEveryPosition) {
  for (const std::size_t count : {0u, 1u, 31u, 1023u, 1024u, 1025u, 3000u}) {
    expect_found<float>(count);
    expect_found<double>(count);
    expect_found<Float16>(count);
    expect_found<BFloat16>(count);
  }
}

TEST(FindNonfinite, IntegersAreFinite) {
  const std::vector<std::int32_t> x(100, 0x7f800000);
  EXPECT_EQ(find_nonfinite(DType::i32, std::as_bytes(std::span(x)).data(), 100), 100u);
}

}  // namespace
}  // namespace hookline::kernel
