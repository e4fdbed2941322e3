// Reference quantization, one value at a time.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "kernel/float_reference.hpp"
#include "kernel/quantize.hpp"

namespace hookline::kernel {

struct ReferenceBlock {
  float scale = 0, zero_point = 0;
  std::vector<int> codes;
};

inline float reference_uniform_offset(std::size_t i, const CounterRng& rng) {
  std::uint32_t x = rng.first_index + static_cast<std::uint32_t>(i) + rng.key;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) + rng.second_key;
  x = (x ^ (x >> 16)) * 0x846ca68bu;
  x ^= x >> 16;
  return static_cast<float>((static_cast<double>(x >> 9) + 0.5) / 0x1p23 - 0.5);
}

/// Quantizes one block; `first` is the index of its first value in the whole array.
inline ReferenceBlock quantize_block(const QuantizationParams& params, std::span<const float> values, std::size_t first,
                                     const CounterRng* rng) {
  const float levels = params.bits == 8 ? 255.0f : 15.0f, middle = params.bits == 8 ? 128.0f : 8.0f;
  ReferenceBlock block{.codes = std::vector<int>(values.size())};
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
    block.scale = kNan;
    return block;
  }
  const float least = *std::ranges::min_element(values), greatest = *std::ranges::max_element(values);
  const float magnitude = std::max(std::abs(least), std::abs(greatest)), normal = std::numeric_limits<float>::min();
  float inverse = 0, lowest = 0, highest = levels;
  if (params.symmetric) {
    block.zero_point = middle;
    if (magnitude > 0) block.scale = std::max(magnitude / (middle - 1), normal);
    if (magnitude >= 0x1p127f) block.scale *= 1 - 0x1p-22f;
    if (magnitude > 0) inverse = 1 / block.scale;
    lowest = 1;
  } else if (least == greatest) {
    block.scale = least == 0 ? 0 : least;
    block.zero_point = least == 0 ? 0.0f : -1.0f;
  } else if (magnitude >= 0x1p127f) {
    block.scale = magnitude / (levels / 2) * (1 - 0x1p-22f);
    block.zero_point = levels / 2;
    inverse = 1 / block.scale;
  } else {
    block.scale = std::max((greatest - least) / levels, normal);
    inverse = 1 / block.scale;
    block.zero_point = 0.0f - least * inverse;
    if (!rng && least <= 0 && greatest >= 0) block.zero_point = std::min(std::nearbyint(block.zero_point), levels);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    float code = values[i] * inverse;
    if (!params.symmetric) code += block.zero_point;
    if (rng) code += reference_uniform_offset(first + i, *rng);
    code = params.symmetric ? std::nearbyint(code) + middle : std::nearbyint(std::clamp(code, lowest, highest));
    block.codes[i] = static_cast<int>(std::clamp(code, lowest, highest));
  }
  return block;
}

struct ReferenceQuantized {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // the decoded values
};

inline ReferenceQuantized quantize_reference(const QuantizationParams& params, const std::vector<float>& values,
                                             const CounterRng* rng) {
  std::vector<std::byte> scales, codes;
  ReferenceQuantized result;
  const auto put_float = [&](float value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    scales.insert(scales.end(), bytes.begin(), bytes.end());
  };
  const std::size_t step = params.block ? params.block : std::max<std::size_t>(values.size(), 1);
  for (std::size_t i = 0; i < values.size(); i += step) {
    const auto block = quantize_block(params, std::span(values).subspan(i, std::min(step, values.size() - i)), i, rng);
    put_float(block.scale);
    if (!params.symmetric) put_float(block.zero_point);
    for (std::size_t j = 0; j < block.codes.size(); ++j) {
      const auto code = static_cast<std::byte>(block.codes[j]);
      if (params.bits == 8 || j % 2 == 0) codes.push_back(code);
      else codes.back() |= code << 4;
      result.values.push_back((static_cast<float>(block.codes[j]) - block.zero_point) * block.scale);
      if (std::isnan(result.values.back())) result.values.back() = kNan;
    }
  }
  result.bytes = scales;
  result.bytes.insert(result.bytes.end(), codes.begin(), codes.end());
  return result;
}

}  // namespace hookline::kernel
