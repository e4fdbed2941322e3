// QuantizeCall and DequantizeCall: arguments passed to the code of each target.
#pragma once

#include <cstddef>

#include "kernel/quantize.hpp"

namespace hookline::kernel {

struct QuantizeCall {
  QuantizationParams params;
  const float* values;
  float* residual;
  std::byte* scales;
  std::byte* codes;
  std::size_t count;
  const CounterRng* rng;
};

struct DequantizeCall {
  QuantizationParams params;
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
