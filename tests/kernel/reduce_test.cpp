// Compares reductions with a scalar reference: every dtype, op and target, sizes around vector widths, misaligned and
// in place.
#include "kernel/reduce.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <hookline/core/error.hpp>

#include "harness/reductions.hpp"
#include "kernel/scale.hpp"

namespace hookline::kernel {
namespace {

using Kind = ReduceOp::Kind;
using Bytes = std::vector<std::byte>;

constexpr std::array kDTypes = {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8,
                                DType::u8,  DType::i16, DType::i32, DType::i64,  DType::boolean};

template <class W>
W float_reference(ReduceOp op, const std::vector<W>& x) {
  const W nan = std::numeric_limits<W>::quiet_NaN();
  const W factor = static_cast<W>(op.factor());
  W result = x[0] * factor;
  for (std::size_t r = 1; r < x.size(); ++r) {
    const W scaled = x[r] * factor;
    const bool no_number = std::isnan(result) || std::isnan(x[r]);
    switch (op.kind()) {
      case Kind::product: result = result * x[r]; break;
      case Kind::min: result = no_number ? nan : x[r] < result ? x[r] : result; break;
      case Kind::max: result = no_number ? nan : x[r] > result ? x[r] : result; break;
      default: result = result + scaled; break;
    }
  }
  if (op.kind() == Kind::avg) result = result / static_cast<W>(x.size());
  return std::isnan(result) ? nan : result;
}

template <class T>
T integer_reference(ReduceOp op, const std::vector<T>& x) {
  std::uint64_t wrapped = static_cast<std::uint64_t>(x[0]);  // its low bits wrap like those of a narrower type
  for (std::size_t r = 1; r < x.size(); ++r) {
    const std::uint64_t y = static_cast<std::uint64_t>(x[r]);
    switch (op.kind()) {
      case Kind::product: wrapped *= y; break;
      case Kind::band: wrapped &= y; break;
      case Kind::bor: wrapped |= y; break;
      case Kind::bxor: wrapped ^= y; break;
      default: wrapped += y; break;
    }
  }
  if (op.kind() == Kind::min) return *std::ranges::min_element(x);
  if (op.kind() == Kind::max) return *std::ranges::max_element(x);
  const T result = static_cast<T>(wrapped);
  if (op.kind() != Kind::avg) return result;
  return static_cast<T>(static_cast<std::int64_t>(result) / static_cast<std::int64_t>(x.size()));
}

bool bool_reference(ReduceOp op, const std::vector<std::uint8_t>& x) {
  const auto set = std::ranges::count_if(x, [](std::uint8_t byte) { return byte != 0; });
  switch (op.kind()) {
    case Kind::product:
    case Kind::min:
    case Kind::band: return set == std::ssize(x);
    case Kind::bxor: return set % 2 == 1;
    default: return set != 0;
  }
}

template <class T>
T reference(ReduceOp op, const std::vector<T>& x) {
  if constexpr (std::is_floating_point_v<T>) return float_reference<T>(op, x);
  else if constexpr (std::is_integral_v<T>) return integer_reference<T>(op, x);
  else return T(float_reference<float>(op, std::vector<float>(x.begin(), x.end())));
}

Bytes expected(ReduceOp op, DType dtype, const std::vector<Bytes>& inputs) {
  Bytes result(inputs[0].size());
  visit_dtype(dtype, [&](auto zero) {
    constexpr bool kBool = std::is_same_v<decltype(zero), bool>;
    using T = std::conditional_t<kBool, std::uint8_t, decltype(zero)>;
    std::vector<T> column(inputs.size());
    for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
      for (std::size_t r = 0; r < inputs.size(); ++r)
        std::memcpy(static_cast<void*>(&column[r]), &inputs[r][at], sizeof(T));
      T value;
      if constexpr (kBool) value = bool_reference(op, column);
      else value = reference<T>(op, column);
      std::memcpy(&result[at], &value, sizeof(T));
    }
  });
  return result;
}

template <class T>
using Wider = std::conditional_t<std::is_same_v<T, double>, double, float>;

// Normally distributed numbers; every eighth element has random bits (NaN with payloads, infinities, subnormals) or is
// a zero of either sign.
template <class T>
T random_element(std::mt19937& random) {
  const std::uint64_t bits = (std::uint64_t{random()} << 32) | random();
  if constexpr (!std::is_integral_v<T>) {
    const double value = static_cast<double>(static_cast<std::int64_t>(bits)) / 0x1p60;
    if (bits % 8 != 0) return T(static_cast<Wider<T>>(value));
    if (bits % 32 == 0) return T(bits % 64 == 0 ? Wider<T>(0.0) : Wider<T>(-0.0));
  }
  T element;
  const std::uint64_t raw = bits >> 7;
  std::memcpy(static_cast<void*>(&element), &raw, sizeof(T));
  return element;
}

std::vector<Bytes> random_inputs(DType dtype, std::size_t ranks, std::size_t count, std::mt19937& random) {
  std::vector<Bytes> inputs(ranks, Bytes(count * size_of(dtype)));
  visit_dtype(dtype, [&](auto zero) {
    constexpr bool kBool = std::is_same_v<decltype(zero), bool>;
    using T = std::conditional_t<kBool, std::uint8_t, decltype(zero)>;
    for (Bytes& input : inputs) {
      for (std::size_t at = 0; at < input.size(); at += sizeof(T)) {
        const T element = kBool && random() % 2 ? T{} : random_element<T>(random);
        std::memcpy(&input[at], &element, sizeof(T));
      }
    }
  });
  return inputs;
}

// A copy of bytes at an offset from a cache line, with guard bytes that must not change.
class Buffer {
 public:
  Buffer(const Bytes& bytes, std::size_t offset) : size_(bytes.size()), memory_(bytes.size() + 256, kGuard) {
    start_ = 128 - reinterpret_cast<std::uintptr_t>(memory_.data()) % 64 + offset;
    if (size_) std::memcpy(data(), bytes.data(), size_);
  }
  std::byte* data() { return memory_.data() + start_; }
  bool holds(const Bytes& bytes) { return size_ == 0 || std::memcmp(data(), bytes.data(), size_) == 0; }
  bool guards_hold() const {
    const auto is_guard = [](std::byte byte) { return byte == kGuard; };
    const auto first = memory_.begin() + static_cast<std::ptrdiff_t>(start_);
    return std::all_of(memory_.begin(), first, is_guard) &&
           std::all_of(first + static_cast<std::ptrdiff_t>(size_), memory_.end(), is_guard);
  }

 private:
  static constexpr std::byte kGuard{0xa5};
  std::size_t size_;
  Bytes memory_;
  std::size_t start_ = 0;
};

struct Shape {
  std::size_t in_place;  // number of destinations that are also sources
  std::size_t elsewhere;
  bool aligned_alike;
  StoreMode stores;
};

void expect_reduced(Target target, ReduceOp op, DType dtype, std::size_t ranks, std::size_t count, Shape shape,
                    std::mt19937& random) {
  const std::vector<Bytes> inputs = random_inputs(dtype, ranks, count, random);
  const Bytes want = expected(op, dtype, inputs);
  const auto offset = [&] { return random() % 64 / size_of(dtype) * size_of(dtype); };
  std::vector<Buffer> buffers;
  for (const Bytes& input : inputs) buffers.emplace_back(input, offset());
  const std::size_t together = offset();
  for (std::size_t i = 0; i < shape.elsewhere; ++i)
    buffers.emplace_back(Bytes(want.size()), shape.aligned_alike ? together : offset());
  std::vector<const std::byte*> sources;
  std::vector<std::byte*> destinations;
  for (std::size_t r = 0; r < ranks; ++r) sources.push_back(buffers[r].data());
  const std::size_t in_place = std::min(shape.in_place, ranks);
  for (std::size_t i = 0; i < in_place; ++i) destinations.push_back(buffers[ranks - 1 - i].data());
  for (std::size_t i = 0; i < shape.elsewhere; ++i) destinations.push_back(buffers[ranks + i].data());
  reduce(op, dtype, sources, destinations, count, shape.stores, target);
  for (std::size_t b = 0; b < buffers.size(); ++b) {
    const bool written = b >= ranks - in_place;
    ASSERT_TRUE(buffers[b].holds(written ? want : inputs[b])) << "buffer " << b << " of " << buffers.size();
    ASSERT_TRUE(buffers[b].guards_hold()) << "around buffer " << b;
  }
}

class ReduceOnTarget : public ::testing::TestWithParam<Target> {};
INSTANTIATE_TEST_SUITE_P(All, ReduceOnTarget,
                         ::testing::ValuesIn(supported_targets().begin(), supported_targets().end()),
                         [](const auto& given) { return std::string(name(given.param)); });

TEST_P(ReduceOnTarget, AgreesWithTheReference) {
  const std::array<Shape, 6> shapes = {{{1, 0, false, StoreMode::automatic},
                                        {7, 0, false, StoreMode::streaming},
                                        {0, 1, false, StoreMode::streaming},
                                        {0, 2, true, StoreMode::streaming},
                                        {0, 2, false, StoreMode::streaming},
                                        {1, 2, false, StoreMode::cached}}};
  std::mt19937 random(20);
  for (const DType dtype : kDTypes) {
    for (const ReduceOp op : testing::all_reduce_ops(0.3)) {
      if (!testing::supports(op, dtype)) continue;
      std::size_t turn = 0;
      for (std::size_t count = 0; count <= 1000; count += count < 130 ? 1 : 217) {
        for (const std::size_t ranks : {1u, 2u, 3u, 4u, 7u}) {
          SCOPED_TRACE(std::string(name(op)) + " of " + std::string(name(dtype)) + ", " + std::to_string(ranks) +
                       " sources of " + std::to_string(count));
          expect_reduced(GetParam(), op, dtype, ranks, count, shapes[turn++ % shapes.size()], random);
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

TEST_P(ReduceOnTarget, SplitRangesGiveTheSameBits) {
  std::mt19937 random(21);
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    for (const ReduceOp op : {ReduceOp::avg, ReduceOp::max, ReduceOp::premul_sum(0.7)}) {
      const std::size_t size = size_of(dtype), count = 20011;
      const std::vector<Bytes> inputs = random_inputs(dtype, 3, count, random);
      Bytes result(count * size);
      for (std::size_t at = 0; at < count;) {
        const std::size_t piece = std::min<std::size_t>(count - at, 1 + random() % 700);
        const std::array<const std::byte*, 3> sources = {&inputs[0][at * size], &inputs[1][at * size],
                                                         &inputs[2][at * size]};
        const std::array<std::byte*, 1> destinations = {&result[at * size]};
        reduce(op, dtype, sources, destinations, piece, StoreMode::automatic, GetParam());
        at += piece;
      }
      EXPECT_TRUE(result == expected(op, dtype, inputs)) << name(op) << " of " << name(dtype);
    }
  }
}

// Large enough for automatic streaming.
TEST(Reduce, StreamsLargeResults) {
  std::mt19937 random(22);
  const Shape elsewhere{0, 1, true, StoreMode::automatic};
  expect_reduced(best_target(), ReduceOp::avg, DType::f32, 2, kStreamThresholdBytes / 4 + 13, elsewhere, random);
}

TEST(Reduce, MinAndMaxPropagateNan) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const ReduceOp op : {ReduceOp::min, ReduceOp::max}) {
    const std::array<float, 3> a = {nan, 1.0f, -0.0f}, b = {1.0f, nan, 0.0f};
    std::array<float, 3> result{};
    const std::array<const std::byte*, 2> sources = {std::as_bytes(std::span(a)).data(),
                                                     std::as_bytes(std::span(b)).data()};
    const std::array<std::byte*, 1> destinations = {std::as_writable_bytes(std::span(result)).data()};
    reduce(op, DType::f32, sources, destinations, 3);
    EXPECT_TRUE(std::isnan(result[0]) && std::isnan(result[1])) << name(op);
    EXPECT_TRUE(std::signbit(result[2])) << name(op) << " keeps the first of two equal values";
  }
}

TEST(Reduce, ScalingIsASumOfOneAddend) {
  std::vector<double> values = {1, -2, 0.1};
  const std::vector<double> want = {values[0] * 0.3, values[1] * 0.3, 0.1};
  std::byte* const bytes = std::as_writable_bytes(std::span(values)).data();
  scale(DType::f64, bytes, bytes, 2, 0.3);
  EXPECT_EQ(values, want);
}

TEST(Reduce, RejectsUnsupportedDTypes) { EXPECT_THROW(reduce(ReduceOp::bxor, DType::f32, {}, {}, 0), InvalidArgument); }

}  // namespace
}  // namespace hookline::kernel
