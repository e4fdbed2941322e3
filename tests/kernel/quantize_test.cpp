// Compares quantization with a scalar reference on every target, and tests error bounds and stochastic rounding.
#include "kernel/quantize.hpp"

#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kernel/quantize_reference.hpp"

namespace hookline::kernel {
namespace {

using Bytes = std::vector<std::byte>;

class QuantizeOnTarget : public testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(All, QuantizeOnTarget,
                         testing::ValuesIn(supported_targets().begin(), supported_targets().end()),
                         [](const auto& given) { return std::string(name(given.param)); });

// Values of one of eight kinds, from typical gradients to extreme inputs.
std::vector<float> values_of_kind(std::size_t count, unsigned kind, std::mt19937& random) {
  if (kind % 8 == 0) return mixed_floats(count, random);
  std::vector<float> values(count);
  std::normal_distribution<float> normal(kind % 8 == 1 ? 3.0f : 0.0f);
  for (float& value : values) {
    value = normal(random);
    if (kind % 8 == 2) value *= 0x1p-140f;                                // subnormal
    if (kind % 8 == 3) value = std::clamp(value, -1.0f, 1.0f) * 3.4e38f;  // value range overflows float
    if (kind % 8 == 4) value = random() % 5 ? (random() % 2 ? 0.0f : -0.0f) : value;
    if (kind % 8 == 5) value = -1.25f;
    if (kind % 8 == 6) value = 1000 + std::abs(value) * 1e-3f;
  }
  return values;
}

struct Case {
  QuantizationParams params;
  bool stochastic;
};

std::vector<Case> all_cases(std::size_t count) {
  std::vector<Case> cases;
  for (const int bits : {8, 4}) {
    for (const bool symmetric : {false, true}) {
      for (const std::size_t block : {std::size_t{0}, std::size_t{1}, std::size_t{7}, std::size_t{64}, std::size_t{100},
                                      std::size_t{128}, std::size_t{512}, count + 1}) {
        for (const bool stochastic : {false, true}) cases.push_back({{bits, symmetric, block}, stochastic});
      }
    }
  }
  return cases;
}

std::string describe(const Case& c, std::size_t count) {
  return std::to_string(count) + " values, " + std::to_string(c.params.bits) + " bits, block " +
         std::to_string(c.params.block) + (c.params.symmetric ? ", symmetric" : ", affine") +
         (c.stochastic ? ", stochastic" : "");
}

void expect_quantized(Target target, const Case& c, const std::vector<float>& values, std::size_t off) {
  const std::size_t count = values.size();
  const CounterRng rng = make_counter_rng(1, 2, 3, 4, (std::uint64_t{5} << 32) + 0xfffffff0u);
  const CounterRng* rng_pointer = c.stochastic ? &rng : nullptr;
  const ReferenceQuantized expected_block = quantize_reference(c.params, values, rng_pointer);
  ASSERT_EQ(c.params.bytes(count), expected_block.bytes.size());
  const auto with_guard_bytes = [&](const Bytes& bytes) {
    Bytes buffer(off + bytes.size() + 64, std::byte{0xa5});
    std::ranges::copy(bytes, buffer.begin() + static_cast<std::ptrdiff_t>(off));
    return buffer;
  };
  Bytes buffer(off + expected_block.bytes.size() + 64, std::byte{0xa5});
  quantize(c.params, values.data(), nullptr, buffer.data() + off, count, rng_pointer, target);
  ASSERT_TRUE(buffer == with_guard_bytes(expected_block.bytes));

  std::vector<float> back(count + 16, 7.0f), expected = back;
  std::ranges::copy(expected_block.values, expected.begin());
  for (const StoreMode store_mode : {StoreMode::cached, StoreMode::streaming}) {
    std::ranges::fill(back, 7.0f);
    dequantize(c.params, buffer.data() + off, back.data(), count, store_mode, target);
    ASSERT_TRUE(same_bits(back, expected));
  }
  for (std::size_t i = 0; i < count; ++i) {
    back[i] = values[count - 1 - i];
    expected[i] += back[i];
    if (std::isnan(expected[i])) expected[i] = kNan;
  }
  dequantize_add(c.params, buffer.data() + off, back.data(), count, target);
  ASSERT_TRUE(same_bits(back, expected));

  const ReferenceQuantized other = quantize_reference(c.params, {values.rbegin(), values.rend()}, nullptr);
  for (std::size_t i = 0; i < count; ++i) {
    expected[i] = (expected_block.values[i] + other.values[i]) * 0.3f;
    if (std::isnan(expected[i])) expected[i] = kNan;
  }
  for (const StoreMode store_mode : {StoreMode::cached, StoreMode::streaming}) {
    std::ranges::fill(back, 7.0f);
    dequantize_sum_two(c.params, buffer.data() + off, other.bytes.data(), 0.3f, back.data(), count, store_mode, target);
    ASSERT_TRUE(same_bits(back, expected));
  }

  std::vector<float> error(count), sum(count), lost(count);
  for (std::size_t i = 0; i < count; ++i) {
    error[i] = i % 2 ? 0.25f : -0.125f;
    sum[i] = values[i] + error[i];
  }
  const ReferenceQuantized fed = quantize_reference(c.params, sum, rng_pointer);
  for (std::size_t i = 0; i < count; ++i) lost[i] = std::isfinite(fed.values[i]) ? sum[i] - fed.values[i] : 0.0f;
  quantize(c.params, values.data(), error.data(), buffer.data() + off, count, rng_pointer, target);
  ASSERT_TRUE(buffer == with_guard_bytes(fed.bytes));
  ASSERT_TRUE(same_bits(error, lost));
}

TEST_P(QuantizeOnTarget, AgreesWithTheReference) {
  std::mt19937 random(40);
  unsigned kind = 0;
  for (std::size_t count = 0; count <= 1300; count += count < 140 ? 1 : 211) {
    for (const Case& c : all_cases(count)) {
      SCOPED_TRACE(describe(c, count) + ", kind " + std::to_string(kind % 8));
      expect_quantized(GetParam(), c, values_of_kind(count, kind++, random), count * 5 % 67);
      if (HasFatalFailure()) return;
    }
    ++kind;  // pairs every case with every kind
  }
}

TEST(Quantize, ErrorStaysBelowTheBound) {
  std::mt19937 random(41);
  for (unsigned kind = 1; kind < 7; ++kind) {
    for (const Case& c : all_cases(1000)) {
      const std::vector<float> values = values_of_kind(1000, kind, random);
      Bytes bytes(c.params.bytes(1000));
      std::vector<float> back(1000);
      const CounterRng rng = make_counter_rng(1, kind, 0, 0, 0);
      quantize(c.params, values.data(), nullptr, bytes.data(), 1000, c.stochastic ? &rng : nullptr);
      dequantize(c.params, bytes.data(), back.data(), 1000);
      const std::size_t block = c.params.block_of(1000);
      for (std::size_t i = 0; i < 1000; ++i) {
        const auto part = std::span(values).subspan(i / block * block, std::min(block, 1000 - i / block * block));
        const double least = *std::ranges::min_element(part), greatest = *std::ranges::max_element(part);
        const double magnitude = std::max(std::abs(least), std::abs(greatest));
        const double codes = c.params.bits == 8 ? 255 : 15;
        const bool middle = c.params.symmetric || magnitude >= 0x1p127;
        double step = middle ? 2 * magnitude / (c.params.symmetric ? codes - 1 : codes) : (greatest - least) / codes;
        step = std::max(step, 0x1p-126);
        const double bound = (c.stochastic ? step : step / 2) * (1 + 1e-5) + 4 * 0x1p-23 * magnitude;
        ASSERT_LE(std::abs(static_cast<double>(back[i]) - values[i]), bound)
            << describe(c, 1000) << ", kind " << kind << ", value " << values[i] << " as " << back[i];
      }
    }
  }
}

TEST(Quantize, KeepsZeroInBlocksOfMixedSign) {
  const std::vector<float> values = {-0.3f, 0.0f, 1.7f, 0.0f, -0.0f};
  for (const int bits : {8, 4}) {
    for (const bool symmetric : {false, true}) {
      const QuantizationParams params{bits, symmetric, 0};
      Bytes bytes(params.bytes(values.size()));
      std::vector<float> back(values.size());
      quantize(params, values.data(), nullptr, bytes.data(), values.size());
      dequantize(params, bytes.data(), back.data(), values.size());
      EXPECT_EQ(back[1], 0.0f);
      EXPECT_EQ(back[4], 0.0f);
    }
  }
}

TEST(Quantize, StochasticRoundingIsUnbiased) {
  std::mt19937 random(42);
  const std::vector<float> values = values_of_kind(256, 7, random);
  constexpr int kTurns = 4000;
  for (const int bits : {8, 4}) {
    for (const bool symmetric : {false, true}) {
      const QuantizationParams params{bits, symmetric, 128};
      Bytes bytes(params.bytes(values.size()));
      std::vector<float> sums(values.size());
      for (std::uint64_t turn = 0; turn < kTurns; ++turn) {
        const CounterRng rng = make_counter_rng(7, turn, turn % 3, turn % 5, 0);
        quantize(params, values.data(), nullptr, bytes.data(), values.size(), &rng);
        dequantize_add(params, bytes.data(), sums.data(), values.size());
      }
      double total = 0;
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto block = quantize_block(params, std::span(values).subspan(i / 128 * 128, 128), 0, nullptr);
        // In quantization steps; the standard deviation of the mean is at most 0.008.
        const double off = (static_cast<double>(sums[i]) / kTurns - values[i]) / block.scale;
        ASSERT_LT(std::abs(off), 0.05) << i;
        total += off;
      }
      EXPECT_LT(std::abs(total / 256), 0.003) << bits << " bits, symmetric " << symmetric;
    }
  }
}

TEST(Quantize, RandomNumbersDependOnEveryKeyField) {
  std::mt19937 random(43);
  const std::vector<float> values = values_of_kind(512, 7, random);
  const QuantizationParams params{4, true, 128};
  const auto bytes_of = [&](const CounterRng& rng) {
    Bytes bytes(params.bytes(values.size()));
    quantize(params, values.data(), nullptr, bytes.data(), values.size(), &rng);
    return bytes;
  };
  const std::array<CounterRng, 7> rng = {make_counter_rng(1, 2, 3, 4, 5),
                                         make_counter_rng(2, 2, 3, 4, 5),
                                         make_counter_rng(1, 3, 3, 4, 5),
                                         make_counter_rng(1, 2, 4, 4, 5),
                                         make_counter_rng(1, 2, 3, 5, 5),
                                         make_counter_rng(1, 2, 3, 4, 6),
                                         make_counter_rng(1, 2, 3, 4, (std::uint64_t{1} << 32) + 5)};
  for (std::size_t a = 0; a < rng.size(); ++a) {
    EXPECT_TRUE(bytes_of(rng[a]) == bytes_of(rng[a]));
    for (std::size_t b = 0; b < a; ++b) EXPECT_FALSE(bytes_of(rng[a]) == bytes_of(rng[b])) << a << " and " << b;
  }
}

// Random numbers of neighbouring elements, steps and ranks must be uncorrelated.
TEST(Quantize, RandomNumbersAreUncorrelated) {
  constexpr std::size_t kCount = 1 << 16;
  const CounterRng rng = make_counter_rng(0, 0, 0, 0, 0), step = make_counter_rng(0, 1, 0, 0, 0),
                   rank = make_counter_rng(0, 0, 0, 1, 0);
  double mean = 0, square = 0, next = 0, by_step = 0, by_rank = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const double x = reference_uniform_offset(i, rng);
    mean += x;
    square += x * x;
    next += x * reference_uniform_offset(i + 1, rng);
    by_step += x * reference_uniform_offset(i, step);
    by_rank += x * reference_uniform_offset(i, rank);
  }
  EXPECT_NEAR(mean / kCount, 0, 0.005);
  EXPECT_NEAR(square / kCount, 1.0 / 12, 0.002);
  for (const double product : {next, by_step, by_rank}) EXPECT_NEAR(product / kCount, 0, 0.0015);
}

TEST(Quantize, StreamsLargeResults) {
  std::mt19937 random(44);
  const std::size_t count = kStreamThresholdBytes / 4 + 77;
  const Case c{{4, true, 128}, false};
  const std::vector<float> values = values_of_kind(count, 7, random);
  Bytes bytes(c.params.bytes(count));
  quantize(c.params, values.data(), nullptr, bytes.data(), count);
  const std::unique_ptr<float[], decltype(&std::free)> back(
      static_cast<float*>(std::aligned_alloc(64, (count * 4 + 63) / 64 * 64)), &std::free);
  dequantize(c.params, bytes.data(), back.get(), count);
  const ReferenceQuantized expected_block = quantize_reference(c.params, values, nullptr);
  EXPECT_EQ(std::memcmp(back.get(), expected_block.values.data(), count * 4), 0);
  dequantize_sum_two(c.params, bytes.data(), bytes.data(), 0.5f, back.get(), count);
  EXPECT_EQ(std::memcmp(back.get(), expected_block.values.data(), count * 4), 0);
}

}  // namespace
}  // namespace hookline::kernel
