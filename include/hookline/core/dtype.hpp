// Element types of tensors and the C++ types that represent them.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include <hookline/core/export.hpp>

namespace hookline {

/// The element type of a tensor.
enum class DType : std::uint8_t { f64, f32, f16, bf16, i8, u8, i16, i32, i64, boolean };

/// Returns the size of one element in bytes.
HOOKLINE_EXPORT std::size_t size_of(DType dtype) noexcept;

constexpr bool is_floating(DType dtype) noexcept {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16;
}

/// Returns NumPy's name of a dtype: "float32", "bfloat16", "bool".
HOOKLINE_EXPORT std::string_view name(DType dtype) noexcept;

/// Returns the dtype of a name: NumPy's or the short one ("f32"). Throws InvalidArgument for other names.
HOOKLINE_EXPORT DType parse_dtype(std::string_view name);

/// IEEE binary16, stored as bits. Conversion from float rounds to nearest even.
struct Float16 {
  std::uint16_t bits = 0;

  Float16() = default;
  HOOKLINE_EXPORT explicit Float16(float value) noexcept;
  HOOKLINE_EXPORT explicit operator float() const noexcept;
  friend bool operator==(Float16 a, Float16 b) noexcept { return float(a) == float(b); }
};

/// bfloat16: the upper half of a float. Conversion from float rounds to nearest even.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  HOOKLINE_EXPORT explicit BFloat16(float value) noexcept;
  explicit operator float() const noexcept { return std::bit_cast<float>(std::uint32_t{bits} << 16); }
  friend bool operator==(BFloat16 a, BFloat16 b) noexcept { return float(a) == float(b); }
};

/// The dtype of a C++ element type: `dtype_of<float> == DType::f32`. Other types do not compile.
template <class T>
inline constexpr DType dtype_of = [] {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, double>) return DType::f64;
  else if constexpr (std::is_same_v<U, float>) return DType::f32;
  else if constexpr (std::is_same_v<U, Float16>) return DType::f16;
  else if constexpr (std::is_same_v<U, BFloat16>) return DType::bf16;
  else if constexpr (std::is_same_v<U, bool>) return DType::boolean;
  else if constexpr (std::is_integral_v<U> && sizeof(U) == 1) return std::is_signed_v<U> ? DType::i8 : DType::u8;
  else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 2) return DType::i16;
  else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 4) return DType::i32;
  else if constexpr (std::is_integral_v<U> && std::is_signed_v<U> && sizeof(U) == 8) return DType::i64;
  else static_assert(sizeof(U) == 0, "hookline: no tensor has elements of this type");
}();

/// Calls `f` with a value-initialized element of the C++ type that represents `dtype`.
template <class F>
decltype(auto) visit_dtype(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f64: return f(double{});
    case DType::f32: return f(float{});
    case DType::f16: return f(Float16{});
    case DType::bf16: return f(BFloat16{});
    case DType::i8: return f(std::int8_t{});
    case DType::u8: return f(std::uint8_t{});
    case DType::i16: return f(std::int16_t{});
    case DType::i32: return f(std::int32_t{});
    case DType::i64: return f(std::int64_t{});
    case DType::boolean: break;
  }
  return f(bool{});
}

}  // namespace hookline
