// P = M Q with optional error feedback for each target, in tiles of a few rows and columns of Q.
#if defined(HOOKLINE_ROW_PRODUCTS_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef HOOKLINE_ROW_PRODUCTS_INL
#undef HOOKLINE_ROW_PRODUCTS_INL
#else
#define HOOKLINE_ROW_PRODUCTS_INL
#endif

#include "kernel/float_lanes-inl.hpp"
#include "kernel/low_rank_call.hpp"

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kSums = 16;  // partial sums per dot product along a row
inline constexpr std::size_t kSumRegisters = kSums / kLanes;
inline constexpr std::size_t kUnrolledRank = 4;

enum class ErrorFeedback : std::uint8_t { none, stored_residual, residual_from_factors };

HWY_INLINE FloatVector load(const float* from) { return hn::LoadU(Floats(), from); }

/// Prefetches into the L2 cache. Rows span several pages, and hardware prefetchers stop at page boundaries; L1 may lack
/// the associativity for rows that are whole pages apart.
HWY_INLINE void prefetch(const float* from) { __builtin_prefetch(from, 0, 2); }

HWY_INLINE float finite_or_zero(float value) { return __builtin_isfinite(value) ? value : 0.0f; }

/// Returns one element of P Q^T.
HWY_INLINE float product_at(const LowRankShape& shape, const float* p, const float* q, std::size_t row,
                            std::size_t column) {
  float sum = p[row] * q[column];
  for (std::size_t k = 1; k < shape.rank; ++k) sum += p[k * shape.p_stride + row] * q[k * shape.q_stride + column];
  return sum;
}

template <ErrorFeedback F>
HWY_INLINE FloatVector add_residual(FloatVector gradients, FloatVector m, FloatVector products) {
  const FloatVector residual = F == ErrorFeedback::stored_residual ? m : hn::Sub(m, products);
  return hn::Add(gradients, finite_or_zero(residual));
}

/// Multiplies rows `row` to `row` + R - 1 of M with K columns of Q starting with `first`. Recomputing the residual from
/// the factors requires K to be the rank.
template <std::size_t K, std::size_t R, ErrorFeedback F>
HWY_INLINE void rows_times_q(const LowRankCall& call, std::size_t row, std::size_t first) {
  const LowRankShape& s = call.shape;
  float* m[R];
  const float* gradients[R];
  FloatVector sums[R][K][kSumRegisters];
  float row_products[R][K];
  for (std::size_t r = 0; r < R; ++r) {
    m[r] = call.m + (row + r) * s.columns;
    gradients[r] = F == ErrorFeedback::none ? nullptr : call.gradients + (row + r) * s.columns;
    for (std::size_t k = 0; k < K; ++k) {
      row_products[r][k] = F == ErrorFeedback::residual_from_factors ? call.p[k * s.p_stride + row + r] : 0.0f;
      for (std::size_t reg = 0; reg < kSumRegisters; ++reg) sums[r][k][reg] = hn::Zero(Floats());
    }
  }
  const float* const q = call.q + first * s.q_stride;
  const std::size_t body = s.columns / kSums * kSums;
  const std::size_t ahead = row + 2 * R <= s.rows ? R * s.columns : 0;
  for (std::size_t j = 0; j < body; j += kSums) {
    for (std::size_t r = 0; r < R; ++r) {
      prefetch(m[r] + j + ahead);
      if (F != ErrorFeedback::none) prefetch(gradients[r] + j + ahead);
    }
    for (std::size_t reg = 0; reg < kSumRegisters; ++reg) {
      const std::size_t at = j + reg * kLanes;
      FloatVector x[R];
      for (std::size_t r = 0; r < R; ++r) x[r] = load(m[r] + at);
      if constexpr (F != ErrorFeedback::none) {
        FloatVector products[R];
        if constexpr (F == ErrorFeedback::residual_from_factors) {
          for (std::size_t k = 0; k < K; ++k) {
            const FloatVector column = load(call.previous_q + k * s.q_stride + at);
            for (std::size_t r = 0; r < R; ++r) {
              const FloatVector term = hn::Mul(hn::Set(Floats(), row_products[r][k]), column);
              products[r] = k == 0 ? term : hn::Add(products[r], term);
            }
          }
        } else {
          for (std::size_t r = 0; r < R; ++r) products[r] = hn::Zero(Floats());
        }
        for (std::size_t r = 0; r < R; ++r) x[r] = add_residual<F>(load(gradients[r] + at), x[r], products[r]);
        for (std::size_t r = 0; r < R; ++r) hn::StoreU(x[r], Floats(), m[r] + at);
      }
      for (std::size_t k = 0; k < K; ++k) {
        const FloatVector column = load(q + k * s.q_stride + at);
        for (std::size_t r = 0; r < R; ++r) sums[r][k][reg] = hn::Add(sums[r][k][reg], hn::Mul(x[r], column));
      }
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    if constexpr (F != ErrorFeedback::none) {
      for (std::size_t j = body; j < s.columns; ++j) {
        float residual = m[r][j];
        if (F == ErrorFeedback::residual_from_factors) residual -= product_at(s, call.p, call.previous_q, row + r, j);
        m[r][j] = gradients[r][j] + finite_or_zero(residual);
      }
    }
    for (std::size_t k = 0; k < K; ++k) {
      float lanes[kSums];
      for (std::size_t reg = 0; reg < kSumRegisters; ++reg) {
        hn::StoreU(sums[r][k][reg], Floats(), lanes + reg * kLanes);
      }
      for (std::size_t j = body; j < s.columns; ++j) lanes[j - body] += m[r][j] * q[k * s.q_stride + j];
      for (std::size_t half = kSums / 2; half > 0; half /= 2) {
        for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      }
      row_products[r][k] = lanes[0];
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t k = 0; k < K; ++k) call.p[(first + k) * s.p_stride + row + r] = row_products[r][k];
  }
}

/// Applies error feedback to one row, for a rank of the factors that has no unrolled kernel.
HWY_INLINE void error_feedback_row(const LowRankCall& call, std::size_t row) {
  const LowRankShape& s = call.shape;
  float* const m = call.m + row * s.columns;
  const float* const gradients = call.gradients + row * s.columns;
  std::size_t j = 0;
  for (; s.columns - j >= kLanes; j += kLanes) {
    FloatVector sum = hn::Mul(hn::Set(Floats(), call.p[row]), load(call.previous_q + j));
    for (std::size_t k = 1; k < s.rank; ++k) {
      const FloatVector column = load(call.previous_q + k * s.q_stride + j);
      sum = hn::Add(sum, hn::Mul(hn::Set(Floats(), call.p[k * s.p_stride + row]), column));
    }
    const FloatVector x = add_residual<ErrorFeedback::residual_from_factors>(load(gradients + j), load(m + j), sum);
    hn::StoreU(x, Floats(), m + j);
  }
  for (; j < s.columns; ++j) {
    m[j] = gradients[j] + finite_or_zero(m[j] - product_at(s, call.p, call.previous_q, row, j));
  }
}

/// The number of rows per tile that keeps the sums in registers.
template <std::size_t K>
inline constexpr std::size_t kRowsAtOnce = [] {
  constexpr std::size_t kRegisters = kLanes == 16 ? 16 : 8;
  constexpr std::size_t kRows = kRegisters / (K * kSumRegisters);
  return kRows < 1 ? 1 : kRows > 4 ? 4 : kRows;
}();

template <std::size_t K, ErrorFeedback F>
HWY_NOINLINE void times_q_rows(const LowRankCall& call, std::size_t begin, std::size_t end, std::size_t first) {
  std::size_t row = begin;
  for (; end - row >= kRowsAtOnce<K>; row += kRowsAtOnce<K>) rows_times_q<K, kRowsAtOnce<K>, F>(call, row, first);
  for (; row < end; ++row) rows_times_q<K, 1, F>(call, row, first);
}

template <ErrorFeedback F>
HWY_INLINE void times_q_columns(const LowRankCall& call, std::size_t begin, std::size_t end, std::size_t first,
                                std::size_t count) {
  switch (count) {
    case 1: return times_q_rows<1, F>(call, begin, end, first);
    case 2: return times_q_rows<2, F>(call, begin, end, first);
    case 3: return times_q_rows<3, F>(call, begin, end, first);
    default: return times_q_rows<kUnrolledRank, F>(call, begin, end, first);
  }
}

/// For a rank of the factors that has no unrolled kernel: passes over a few cached rows several times.
template <ErrorFeedback F>
HWY_INLINE void times_q_blocked(const LowRankCall& call) {
  constexpr std::size_t kRows = 4;
  const LowRankShape& s = call.shape;
  for (std::size_t row = 0; row < s.rows; row += kRows) {
    const std::size_t end = s.rows - row < kRows ? s.rows : row + kRows;
    std::size_t first = 0;
    if constexpr (F == ErrorFeedback::stored_residual) {
      times_q_rows<kUnrolledRank, F>(call, row, end, 0);
      first = kUnrolledRank;
    } else if constexpr (F == ErrorFeedback::residual_from_factors) {
      for (std::size_t i = row; i < end; ++i) error_feedback_row(call, i);
    }
    for (; first < s.rank; first += kUnrolledRank) {
      const std::size_t count = s.rank - first < kUnrolledRank ? s.rank - first : kUnrolledRank;
      times_q_columns<ErrorFeedback::none>(call, row, end, first, count);
    }
  }
}

template <ErrorFeedback F>
HWY_NOINLINE void matrix_times_q(const LowRankCall& call) {
  if (call.shape.rank <= kUnrolledRank) times_q_columns<F>(call, 0, call.shape.rows, 0, call.shape.rank);
  else times_q_blocked<F>(call);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
