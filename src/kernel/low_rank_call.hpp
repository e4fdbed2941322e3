// LowRankCall: the arguments of a low-rank product, passed to the code of each target.
#pragma once

#include <cstdint>

#include "kernel/low_rank.hpp"

namespace hookline::kernel {

enum class LowRankKind : std::uint8_t { times_q, feed_back, transposed, product, subtract };

/// Input pointers are cast to non-const.
struct LowRankCall {
  LowRankKind what;
  LowRankShape shape;
  const float* gradients = nullptr;  // feed_back
  float* m;                          // product: the values
  const float* q_before = nullptr;   // feed_back; null: the residual is m
  float* q;
  float* p;
  bool stream = false;  // product
};

}  // namespace hookline::kernel
