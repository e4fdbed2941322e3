// Reference quantization, one value at a time.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "kernel/float_reference.hpp"
#include "kernel/quantise.hpp"

namespace hookline::kernel {

struct ReferenceBlock {
  float scale = 0, zero = 0;
  std::vector<int> codes;
};

inline float reference_draw(std::size_t i, const Draws& draws) {
  std::uint32_t x = draws.first + static_cast<std::uint32_t>(i) + draws.key;
  x = (x ^ (x >> 16)) * 0x7feb352du;
  x = (x ^ (x >> 15)) + draws.second_key;
  x = (x ^ (x >> 16)) * 0x846ca68bu;
  x ^= x >> 16;
  return static_cast<float>((static_cast<double>(x >> 9) + 0.5) / 0x1p23 - 0.5);
}

/// Quantizes one block; `first` is the index of its first value in the whole array.
inline ReferenceBlock quantise_block(const Quantisation& how, std::span<const float> values, std::size_t first,
                                     const Draws* draws) {
  const float levels = how.bits == 8 ? 255.0f : 15.0f, middle = how.bits == 8 ? 128.0f : 8.0f;
  ReferenceBlock block{.codes = std::vector<int>(values.size())};
  if (!std::ranges::all_of(values, [](float v) { return std::isfinite(v); })) {
    block.scale = kNan;
    return block;
  }
  const float least = *std::ranges::min_element(values), greatest = *std::ranges::max_element(values);
  const float magnitude = std::max(std::abs(least), std::abs(greatest)), normal = std::numeric_limits<float>::min();
  float inverse = 0, lowest = 0, highest = levels;
  if (how.symmetric) {
    block.zero = middle;
    if (magnitude > 0) block.scale = std::max(magnitude / (middle - 1), normal);
    if (magnitude >= 0x1p127f) block.scale *= 1 - 0x1p-22f;
    if (magnitude > 0) inverse = 1 / block.scale;
    lowest = 1;
  } else if (least == greatest) {
    block.scale = least == 0 ? 0 : least;
    block.zero = least == 0 ? 0.0f : -1.0f;
  } else if (magnitude >= 0x1p127f) {
    block.scale = magnitude / (levels / 2) * (1 - 0x1p-22f);
    block.zero = levels / 2;
    inverse = 1 / block.scale;
  } else {
    block.scale = std::max((greatest - least) / levels, normal);
    inverse = 1 / block.scale;
    block.zero = 0.0f - least * inverse;
    if (!draws && least <= 0 && greatest >= 0) block.zero = std::min(std::nearbyint(block.zero), levels);
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    float code = values[i] * inverse;
    if (!how.symmetric) code += block.zero;
    if (draws) code += reference_draw(first + i, *draws);
    code = how.symmetric ? std::nearbyint(code) + middle : std::nearbyint(std::clamp(code, lowest, highest));
    block.codes[i] = static_cast<int>(std::clamp(code, lowest, highest));
  }
  return block;
}

struct ReferenceQuantised {
  std::vector<std::byte> bytes;
  std::vector<float> values;  // the decoded values
};

inline ReferenceQuantised quantise_reference(const Quantisation& how, const std::vector<float>& values,
                                             const Draws* draws) {
  std::vector<std::byte> scales, codes;
  ReferenceQuantised result;
  const auto put_float = [&](float value) {
    const auto bytes = std::as_bytes(std::span(&value, 1));
    scales.insert(scales.end(), bytes.begin(), bytes.end());
  };
  const std::size_t step = how.block ? how.block : std::max<std::size_t>(values.size(), 1);
  for (std::size_t i = 0; i < values.size(); i += step) {
    const auto block = quantise_block(how, std::span(values).subspan(i, std::min(step, values.size() - i)), i, draws);
    put_float(block.scale);
    if (!how.symmetric) put_float(block.zero);
    for (std::size_t j = 0; j < block.codes.size(); ++j) {
      const auto code = static_cast<std::byte>(block.codes[j]);
      if (how.bits == 8 || j % 2 == 0) codes.push_back(code);
      else codes.back() |= code << 4;
      result.values.push_back((static_cast<float>(block.codes[j]) - block.zero) * block.scale);
      if (std::isnan(result.values.back())) result.values.back() = kNan;
    }
  }
  result.bytes = scales;
  result.bytes.insert(result.bytes.end(), codes.begin(), codes.end());
  return result;
}

}  // namespace hookline::kernel
