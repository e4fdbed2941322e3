// What the code of every target is told about a cast.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hookline/core/dtype.hpp>

namespace hookline::kernel {

enum class CastKind : std::uint8_t { narrow, narrow_with_error, widen, widen_add, widen_two };

/// The side that a cast only reads has lost its const here.
struct CastCall {
  CastKind what;
  DType dtype;
  float* floats;  // narrow_with_error: the errors
  std::byte* halves;
  const float* values;  // narrow_with_error alone
  std::size_t count;
  bool stream;
  const std::byte* second = nullptr;  // widen_two alone
  float factor = 1;
};

}  // namespace hookline::kernel
