// What the code of every target is told about a product with factors.
#pragma once

#include <cstdint>

#include "kernel/low_rank.hpp"

namespace hookline::kernel {

enum class LowRankKind : std::uint8_t { times_q, feed_back, transposed, product, subtract };

/// Pointers that a kind only reads have lost their const here.
struct LowRankCall {
  LowRankKind what;
  LowRankShape shape;
  const float* gradients = nullptr;  // feed_back
  float* m;                          // product: the values
  const float* q_before = nullptr;   // feed_back; null: the errors are m
  float* q;
  float* p;
  bool stream = false;  // product
};

}  // namespace hookline::kernel
