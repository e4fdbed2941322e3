// Measures the codecs and casts against memcpy, in interleaved rounds on one core.
//
// All rates are GB of float32 input per second.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <hookline/codec/make_codec.hpp>

#include "kernel/cast.hpp"
#include "sampling.hpp"

namespace {

using namespace hookline;
using bench::map_buffer;
using bench::median;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kLargest = 48u << 20;

struct Row {
  std::string label;
  std::function<void(std::size_t count)> run;
  std::vector<double> rates;
};

struct Buffers {
  float* values = reinterpret_cast<float*>(map_buffer(kLargest));
  float* result = reinterpret_cast<float*>(map_buffer(kLargest));
  float* error = reinterpret_cast<float*>(map_buffer(kLargest));
  std::byte* message = map_buffer(kLargest);
};

void add_rows(std::vector<Row>& rows, const Buffers& b, const char* spec) {
  const CodecPtr codec = make_codec(spec);
  const auto message = [=](std::size_t count) { return std::span(b.message, codec->encoded_bytes(count)); };
  const auto encode = [=](std::size_t count) { codec->encode({b.values, count}, message(count)); };
  const auto decode = [=](std::size_t count) { codec->decode(message(count), {b.result, count}); };
  rows.push_back({codec->name() + ", both", [=](std::size_t count) { encode(count), decode(count); }, {}});
  rows.push_back({"  encode", encode, {}});
  rows.push_back({"  decode", decode, {}});
  rows.push_back(
      {"  decode and add", [=](std::size_t count) { codec->decode_add(message(count), {b.result, count}); }, {}});
  rows.push_back(
      {"  encode with error",
       [=](std::size_t count) { codec->encode_with_residual({b.values, count}, {b.error, count}, message(count)); },
       {}});
}

}  // namespace

int main() {
  const Buffers b;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  for (std::size_t i = 0; i < kLargest / 4; ++i) b.values[i] = normal(random);
  std::vector<Row> rows = {
      {"memcpy", [&](std::size_t n) { std::memcpy(b.result, b.values, n * 4); }, {}},
      {"cast to f16", [&](std::size_t n) { kernel::narrow(DType::f16, b.values, b.message, n); }, {}},
      {"cast to bf16", [&](std::size_t n) { kernel::narrow(DType::bf16, b.values, b.message, n); }, {}},
      {"cast from f16", [&](std::size_t n) { kernel::widen(DType::f16, b.message, b.result, n); }, {}},
      {"cast from bf16", [&](std::size_t n) { kernel::widen(DType::bf16, b.message, b.result, n); }, {}},
  };
  for (const char* text : {"fp16", "bf16", "fp16(checksum=false)", "int8(block=512)", "int8(block=512, checksum=false)",
                           "int8(block=tensor)", "int8(block=512, rounding=stochastic)", "int4(block=128)",
                           "int4(block=128, checksum=false)", "int4(block=128, rounding=stochastic)"})
    add_rows(rows, b, text);
  for (const std::size_t bytes : {std::size_t{64} << 10, std::size_t{4} << 20, kLargest / 2}) {
    for (int round = 0; round < 9; ++round) {
      for (Row& row : rows) {
        const std::size_t repeats = std::max<std::size_t>(1, (8u << 20) / bytes);
        const auto start = Clock::now();
        for (std::size_t i = 0; i < repeats; ++i) row.run(bytes / 4);
        const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
        row.rates.push_back(static_cast<double>(bytes * repeats) / seconds / 1e9);
      }
    }
    std::printf("%zu KiB of float32: GB/s of float32, median of 9 rounds; ratio to memcpy\n", bytes >> 10);
    const double copy = median(rows[0].rates);
    for (Row& row : rows) {
      std::printf("  %-46s %7.2f  %5.2f\n", row.label.c_str(), median(row.rates), median(row.rates) / copy);
      row.rates.clear();
    }
  }
}
