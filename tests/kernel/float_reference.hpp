// Reference float conversions in double arithmetic, and generators of test floats.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <hookline/core/dtype.hpp>

namespace hookline::kernel {

inline const float kNan = std::numeric_limits<float>::quiet_NaN();
inline const float kInf = std::numeric_limits<float>::infinity();

/// Returns the nearest number with `mantissa` fraction bits and exponents from `least` to `most`, ties to even.
inline float rounded(float value, int mantissa, int least, int most) {
  if (std::isnan(value)) return kNan;
  if (std::isinf(value) || value == 0) return value;
  const int exponent = std::max(std::ilogb(value), least);
  const double unit = std::ldexp(1.0, exponent - mantissa);
  const double result = std::nearbyint(static_cast<double>(value) / unit) * unit;
  if (std::fabs(result) >= std::ldexp(1.0, most + 1)) return std::copysign(kInf, value);
  return std::copysign(static_cast<float>(result), value);
}

inline float rounded(float value, DType dtype) {
  return dtype == DType::f16 ? rounded(value, 10, -14, 15) : rounded(value, 7, -126, 127);
}

/// Returns the bits of an exactly representable number.
inline std::uint16_t bits_of(float value, DType dtype) {
  if (dtype == DType::bf16) return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
  const unsigned sign = std::signbit(value) ? 0x8000u : 0u;
  if (std::isnan(value)) return 0x7e00;
  if (std::isinf(value)) return static_cast<std::uint16_t>(sign | 0x7c00u);
  const double size = std::fabs(static_cast<double>(value));
  if (size < 0x1p-14) return static_cast<std::uint16_t>(sign | static_cast<unsigned>(size * 0x1p24));
  const int exponent = std::ilogb(size);
  const auto fraction = static_cast<unsigned>((std::ldexp(size, -exponent) - 1) * 1024);
  return static_cast<std::uint16_t>(sign | (static_cast<unsigned>(exponent + 15) << 10) | fraction);
}

inline float tie(float value, std::uint32_t half) {
  return std::bit_cast<float>((std::bit_cast<std::uint32_t>(value) & ~(2 * half - 1)) | half);
}

/// Normally distributed numbers, some of them midpoints of 16-bit formats. Every eighth has random bits: NaN with
/// payloads, infinities, subnormals, zeros.
inline std::vector<float> mixed_floats(std::size_t count, std::mt19937& random) {
  std::vector<float> result(count);
  std::normal_distribution<float> normal;
  for (float& value : result) {
    const auto bits = static_cast<std::uint32_t>(random());
    if (bits % 8 == 1) value = tie(normal(random), 0x8000u);       // midpoint of bf16
    else if (bits % 8 == 2) value = tie(normal(random), 0x1000u);  // midpoint of f16
    else if (bits % 8 != 0) value = normal(random);
    else if (bits % 32 == 0) value = bits % 64 == 0 ? 0.0f : -0.0f;
    else if (bits % 32 == 8) value = normal(random) * 0x1p-20f;  // near the smallest f16
    else value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
  }
  return result;
}

inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0);
}

}  // namespace hookline::kernel
