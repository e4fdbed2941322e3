// One call of the reduction as the code of every target gets it.
#pragma once

#include <cstddef>
#include <cstdint>

#include <hookline/core/reduce_op.hpp>

namespace hookline::kernel {

enum class Finish : std::uint8_t { nothing, multiply, divide };

/// Kind is sum, product, min, max, band, bor or bxor; avg and premul_sum are a sum with something before or after it.
struct ReduceCall {
  const std::byte* const* sources;
  std::size_t source_count;
  std::byte* const* destinations;
  std::size_t destination_count;
  ReduceOp::Kind kind;
  bool premultiply;
  bool stream;  // write around the caches
  Finish finish;
  double factor;   // of every source
  double divisor;  // of the result
};

}  // namespace hookline::kernel
