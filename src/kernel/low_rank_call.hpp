// LowRankCall: the arguments of a low-rank product, passed to the code of each target.
#pragma once

#include <cstdint>

#include "kernel/low_rank.hpp"

namespace hookline::kernel {

enum class LowRankKind : std::uint8_t { times_q, error_feedback, add_transposed, product, subtract };

/// Input pointers are cast to non-const.
struct LowRankCall {
  LowRankKind kind;
  LowRankShape shape;
  const float* gradients = nullptr;   // error_feedback
  float* m;                           // product: the values
  const float* previous_q = nullptr;  // error_feedback; null: the residual is m
  float* q;
  float* p;
  bool stream = false;  // product
};

}  // namespace hookline::kernel
