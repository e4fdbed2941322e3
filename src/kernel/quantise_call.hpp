// QuantizeCall and DequantizeCall: arguments passed to the code of each target.
#pragma once

#include <cstddef>

#include "kernel/quantise.hpp"

namespace hookline::kernel {

struct QuantiseCall {
  Quantisation how;
  const float* values;
  float* error;
  std::byte* scales;
  std::byte* codes;
  std::size_t count;
  const Draws* draws;
};

struct DequantiseCall {
  Quantisation how;
  const std::byte* scales;
  const std::byte* codes;
  float* values;
  std::size_t count;
  bool add = false;
  bool stream = false;
  const std::byte* second_scales = nullptr;  // of a second array, added to the first
  const std::byte* second_codes = nullptr;
  float factor = 1;  // applied to the sum
};

}  // namespace hookline::kernel
