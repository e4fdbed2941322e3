// Low-rank products for each target: along rows, along columns, and of the two factors.
#include "kernel/low_rank.hpp"

#include <cstdint>

#include "kernel/low_rank_call.hpp"
#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/low_rank.cpp"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernel/row_products-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kRowsPerAdd = 4;  // rows summed per update of Q; determines the bits

/// Adds the products of R rows of M with K columns of P to K columns of Q.
template <std::size_t K, std::size_t R>
HWY_INLINE void add_rows(const LowRankCall& call, std::size_t row, std::size_t first) {
  static_assert(R == 1 || R == 4);
  const LowRankShape& s = call.shape;
  const float* const m = call.m + row * s.columns;
  float factors[K][R];
  for (std::size_t k = 0; k < K; ++k) {
    for (std::size_t r = 0; r < R; ++r) factors[k][r] = call.p[(first + k) * s.p_stride + row + r];
  }
  float* const q = call.q + first * s.q_stride;
  const std::size_t ahead = row + 2 * R <= s.rows ? R * s.columns : 0;
  std::size_t j = 0;
  for (; s.columns - j >= kLanes; j += kLanes) {
    FloatVector x[R];
    for (std::size_t r = 0; r < R; ++r) x[r] = load(m + r * s.columns + j);
    for (std::size_t r = 0; r < R; ++r) prefetch(m + r * s.columns + j + ahead);
    for (std::size_t k = 0; k < K; ++k) {
      FloatVector terms[R];
      for (std::size_t r = 0; r < R; ++r) terms[r] = hn::Mul(x[r], hn::Set(Floats(), factors[k][r]));
      if constexpr (R == 4) terms[0] = hn::Add(hn::Add(terms[0], terms[1]), hn::Add(terms[2], terms[3]));
      float* const to = q + k * s.q_stride + j;
      hn::StoreU(hn::Add(load(to), terms[0]), Floats(), to);
    }
  }
  for (; j < s.columns; ++j) {
    for (std::size_t k = 0; k < K; ++k) {
      float terms[R];
      for (std::size_t r = 0; r < R; ++r) terms[r] = m[r * s.columns + j] * factors[k][r];
      if constexpr (R == 4) terms[0] = (terms[0] + terms[1]) + (terms[2] + terms[3]);
      q[k * s.q_stride + j] += terms[0];
    }
  }
}

template <std::size_t K>
HWY_NOINLINE void add_block(const LowRankCall& call, std::size_t row, std::size_t rows, std::size_t first) {
  if (rows == kRowsPerAdd) return add_rows<K, kRowsPerAdd>(call, row, first);
  for (std::size_t r = 0; r < rows; ++r) add_rows<K, 1>(call, row + r, first);
}

HWY_INLINE void add_transposed(const LowRankCall& call) {
  const LowRankShape& s = call.shape;
  for (std::size_t row = 0; row < s.rows; row += kRowsPerAdd) {
    const std::size_t rows = s.rows - row < kRowsPerAdd ? s.rows - row : kRowsPerAdd;
    for (std::size_t first = 0; first < s.rank; first += kUnrolledRank) {
      switch (s.rank - first) {
        case 1: add_block<1>(call, row, rows, first); break;
        case 2: add_block<2>(call, row, rows, first); break;
        case 3: add_block<3>(call, row, rows, first); break;
        default: add_block<kUnrolledRank>(call, row, rows, first);
      }
    }
  }
}

/// Writes or subtracts one row of P Q^T. K is the rank, or 0 for any rank.
template <std::size_t K, bool kSubtract, bool kStream>
HWY_INLINE void product_row(const LowRankCall& call, std::size_t row) {
  const LowRankShape& s = call.shape;
  const std::size_t rank = K > 0 ? K : s.rank;
  float* const to = call.m + row * s.columns;
  const auto store_element = [&](std::size_t j) {
    const float value = product_at(s, call.p, call.q, row, j);
    to[j] = kSubtract ? finite_or_zero(to[j] - value) : value;
  };
  std::size_t j = 0;
  if constexpr (kStream) {
    for (; j < s.columns && reinterpret_cast<std::uintptr_t>(to + j) % 64 != 0; ++j) store_element(j);
  }
  FloatVector factors[K > 0 ? K : 1];
  if constexpr (K > 0) {
    for (std::size_t k = 0; k < K; ++k) factors[k] = hn::Set(Floats(), call.p[k * s.p_stride + row]);
  }
  for (; s.columns - j >= kLanes; j += kLanes) {
    FloatVector sum = hn::Zero(Floats());
    for (std::size_t k = 0; k < rank; ++k) {
      const FloatVector factor = K > 0 ? factors[K > 0 ? k : 0] : hn::Set(Floats(), call.p[k * s.p_stride + row]);
      const FloatVector term = hn::Mul(factor, load(call.q + k * s.q_stride + j));
      sum = k == 0 ? term : hn::Add(sum, term);
    }
    if constexpr (kSubtract) hn::StoreU(finite_or_zero(hn::Sub(load(to + j), sum)), Floats(), to + j);
    else store_lanes<kStream>(sum, Floats(), to + j);
  }
  for (; j < s.columns; ++j) store_element(j);
}

template <std::size_t K, bool kSubtract, bool kStream>
HWY_NOINLINE void product_rows(const LowRankCall& call) {
  for (std::size_t row = 0; row < call.shape.rows; ++row) product_row<K, kSubtract, kStream>(call, row);
  if constexpr (kStream) hwy::FlushStream();
}

template <bool kSubtract, bool kStream>
HWY_INLINE void product_of_rank(const LowRankCall& call) {
  switch (call.shape.rank) {
    case 1: return product_rows<1, kSubtract, kStream>(call);
    case 2: return product_rows<2, kSubtract, kStream>(call);
    case 4: return product_rows<4, kSubtract, kStream>(call);
    default: return product_rows<0, kSubtract, kStream>(call);
  }
}

void low_rank_call(const LowRankCall& call) {
  switch (call.kind) {
    case LowRankKind::times_q: return matrix_times_q<ErrorFeedback::none>(call);
    case LowRankKind::error_feedback:
      if (call.previous_q) return matrix_times_q<ErrorFeedback::residual_from_factors>(call);
      return matrix_times_q<ErrorFeedback::stored_residual>(call);
    case LowRankKind::add_transposed: return add_transposed(call);
    case LowRankKind::product:
      if (call.stream) return product_of_rank<false, true>(call);
      return product_of_rank<false, false>(call);
    case LowRankKind::subtract: return product_of_rank<true, false>(call);
  }
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {
namespace {

void run(Target target, const LowRankCall& call) {
  if (call.shape.rows == 0 || call.shape.columns == 0 || call.shape.rank == 0) return;
  HOOKLINE_DISPATCH(target, low_rank_call)(call);
}

float* writable(const float* pointer) { return const_cast<float*>(pointer); }

}  // namespace

void times_q(const LowRankShape& shape, const float* m, const float* q, float* p, Target target) {
  run(target, {.kind = LowRankKind::times_q, .shape = shape, .m = writable(m), .q = writable(q), .p = p});
}

void error_feedback_times_q(const LowRankShape& shape, const float* gradients, float* m, const float* previous_q,
                            const float* q, float* p, Target target) {
  run(target, {LowRankKind::error_feedback, shape, gradients, m, previous_q, writable(q), p});
}

void add_transposed_times_p(const LowRankShape& shape, const float* m, const float* p, float* q, Target target) {
  run(target, {.kind = LowRankKind::add_transposed, .shape = shape, .m = writable(m), .q = q, .p = writable(p)});
}

void product(const LowRankShape& shape, const float* p, const float* q, float* values, StoreMode store_mode,
             Target target) {
  const std::size_t bytes = shape.rows * shape.columns * sizeof(float);
  run(target, {.kind = LowRankKind::product,
               .shape = shape,
               .m = values,
               .q = writable(q),
               .p = writable(p),
               .stream = should_stream(store_mode, bytes)});
}

void subtract_product(const LowRankShape& shape, const float* p, const float* q, float* m, Target target) {
  run(target, {.kind = LowRankKind::subtract, .shape = shape, .m = m, .q = writable(q), .p = writable(p)});
}

}  // namespace hookline::kernel
#endif
