// Dtype sizes and names, and conversions to float16 and bfloat16.
#include <hookline/core/dtype.hpp>

#include <array>
#include <cmath>
#include <string>

#include <hookline/core/error.hpp>

namespace hookline {
namespace {

struct DTypeInfo {
  std::size_t size;
  std::string_view name;
  std::string_view short_name;
};

constexpr std::array<DTypeInfo, 10> kDTypes = {{
    {8, "float64", "f64"},
    {4, "float32", "f32"},
    {2, "float16", "f16"},
    {2, "bfloat16", "bf16"},
    {1, "int8", "i8"},
    {1, "uint8", "u8"},
    {2, "int16", "i16"},
    {4, "int32", "i32"},
    {8, "int64", "i64"},
    {1, "bool", "boolean"},
}};

const DTypeInfo& info_of(DType dtype) noexcept { return kDTypes[static_cast<std::size_t>(dtype)]; }

}  // namespace

std::size_t size_of(DType dtype) noexcept { return info_of(dtype).size; }

std::string_view name(DType dtype) noexcept { return info_of(dtype).name; }

DType parse_dtype(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kDTypes.size(); ++i) {
    if (kDTypes[i].name == name || kDTypes[i].short_name == name) return static_cast<DType>(i);
    known += (i ? ", " : "") + std::string(kDTypes[i].name);
  }
  throw InvalidArgument("unknown dtype '" + std::string(name) + "': expected one of " + known);
}

// Subnormal results are multiples of 2^-24, the spacing of floats in [0.5, 1): adding 0.5 lets the FPU round to nearest
// even. Normal results are rounded on the bits, where a carry propagates into the exponent.
Float16::Float16(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((word >> 16) & 0x8000u);
  const std::uint32_t magnitude = word & 0x7fffffffu;
  if (magnitude > 0x7f800000u) {
    bits = static_cast<std::uint16_t>(sign | 0x7e00u | ((magnitude >> 13) & 0x3ffu));
  } else if (magnitude >= 0x477ff000u) {  // values from 65520 round to infinity
    bits = static_cast<std::uint16_t>(sign | 0x7c00u);
  } else if (magnitude < 0x38800000u) {  // below 2^-14: a multiple of 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    bits = static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3f000000u));
  } else {
    const std::uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    bits = static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
  }
}

Float16::operator float() const noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000u} << 16;
  const std::uint32_t exponent = (bits >> 10) & 0x1fu;
  const std::uint32_t mantissa = bits & 0x3ffu;
  if (exponent == 0) {
    const float value = std::ldexp(static_cast<float>(mantissa), -24);
    return sign ? -value : value;
  }
  const std::uint32_t top = exponent == 31 ? 0x7f800000u : (exponent + 112) << 23;
  return std::bit_cast<float>(sign | top | (mantissa << 13));
}

BFloat16::BFloat16(float value) noexcept {
  const auto word = std::bit_cast<std::uint32_t>(value);
  if ((word & 0x7fffffffu) > 0x7f800000u) {
    bits = static_cast<std::uint16_t>((word >> 16) | 0x40u);  // keeps NaN a NaN
  } else {
    bits = static_cast<std::uint16_t>((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
}

}  // namespace hookline
