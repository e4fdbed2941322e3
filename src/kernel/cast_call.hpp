// CastCall: the arguments of a cast, passed to the code of each target.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hookline/core/dtype.hpp>

namespace hookline::kernel {

enum class CastKind : std::uint8_t { narrow, narrow_with_residual, widen, widen_add, widen_sum_two };

/// Pointers to the input side are cast to non-const.
struct CastCall {
  CastKind kind;
  DType dtype;
  float* floats;  // narrow_with_residual: the residuals
  std::byte* halves;
  const float* values;  // narrow_with_residual only
  std::size_t count;
  bool stream;
  const std::byte* second = nullptr;  // widen_two only
  float factor = 1;
};

}  // namespace hookline::kernel
