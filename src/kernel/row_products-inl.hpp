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
inline constexpr std::size_t kParts = kSums / kLanes;
inline constexpr std::size_t kUnrolledRank = 4;

enum class Feedback : std::uint8_t { none, errors, errors_of_products };

HWY_INLINE FloatVector load(const float* from) { return hn::LoadU(Floats(), from); }

/// Prefetches into the L2 cache. Rows span several pages, and hardware prefetchers stop at page boundaries; L1 may lack
/// the associativity for rows that are whole pages apart.
HWY_INLINE void fetch(const float* from) { __builtin_prefetch(from, 0, 2); }

HWY_INLINE float finite_or_zero(float value) { return __builtin_isfinite(value) ? value : 0.0f; }

/// Returns one element of P Q^T.
HWY_INLINE float product_at(const LowRankShape& shape, const float* p, const float* q, std::size_t row,
                            std::size_t column) {
  float sum = p[row] * q[column];
  for (std::size_t k = 1; k < shape.rank; ++k) sum += p[k * shape.p_stride + row] * q[k * shape.q_stride + column];
  return sum;
}

template <Feedback F>
HWY_INLINE FloatVector fed_back(FloatVector gradients, FloatVector m, FloatVector products) {
  const FloatVector errors = F == Feedback::errors ? m : hn::Sub(m, products);
  return hn::Add(gradients, finite_or_zero(errors));
}

/// Multiplies rows `row` to `row` + R - 1 of M with K columns of Q starting with `first`. Recomputing the residual from
/// the factors requires K to be the rank.
template <std::size_t K, std::size_t R, Feedback F>
HWY_INLINE void rows_times_q(const LowRankCall& call, std::size_t row, std::size_t first) {
  const LowRankShape& s = call.shape;
  float* m[R];
  const float* gradients[R];
  FloatVector sums[R][K][kParts];
  float before[R][K];
  for (std::size_t r = 0; r < R; ++r) {
    m[r] = call.m + (row + r) * s.columns;
    gradients[r] = F == Feedback::none ? nullptr : call.gradients + (row + r) * s.columns;
    for (std::size_t k = 0; k < K; ++k) {
      before[r][k] = F == Feedback::errors_of_products ? call.p[k * s.p_stride + row + r] : 0.0f;
      for (std::size_t part = 0; part < kParts; ++part) sums[r][k][part] = hn::Zero(Floats());
    }
  }
  const float* const q = call.q + first * s.q_stride;
  const std::size_t body = s.columns / kSums * kSums;
  const std::size_t ahead = row + 2 * R <= s.rows ? R * s.columns : 0;
  for (std::size_t j = 0; j < body; j += kSums) {
    for (std::size_t r = 0; r < R; ++r) {
      fetch(m[r] + j + ahead);
      if (F != Feedback::none) fetch(gradients[r] + j + ahead);
    }
    for (std::size_t part = 0; part < kParts; ++part) {
      const std::size_t at = j + part * kLanes;
      FloatVector x[R];
      for (std::size_t r = 0; r < R; ++r) x[r] = load(m[r] + at);
      if constexpr (F != Feedback::none) {
        FloatVector products[R];
        if constexpr (F == Feedback::errors_of_products) {
          for (std::size_t k = 0; k < K; ++k) {
            const FloatVector column = load(call.q_before + k * s.q_stride + at);
            for (std::size_t r = 0; r < R; ++r) {
              const FloatVector term = hn::Mul(hn::Set(Floats(), before[r][k]), column);
              products[r] = k == 0 ? term : hn::Add(products[r], term);
            }
          }
        } else {
          for (std::size_t r = 0; r < R; ++r) products[r] = hn::Zero(Floats());
        }
        for (std::size_t r = 0; r < R; ++r) x[r] = fed_back<F>(load(gradients[r] + at), x[r], products[r]);
        for (std::size_t r = 0; r < R; ++r) hn::StoreU(x[r], Floats(), m[r] + at);
      }
      for (std::size_t k = 0; k < K; ++k) {
        const FloatVector column = load(q + k * s.q_stride + at);
        for (std::size_t r = 0; r < R; ++r) sums[r][k][part] = hn::Add(sums[r][k][part], hn::Mul(x[r], column));
      }
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    if constexpr (F != Feedback::none) {
      for (std::size_t j = body; j < s.columns; ++j) {
        float error = m[r][j];
        if (F == Feedback::errors_of_products) error -= product_at(s, call.p, call.q_before, row + r, j);
        m[r][j] = gradients[r][j] + finite_or_zero(error);
      }
    }
    for (std::size_t k = 0; k < K; ++k) {
      float lanes[kSums];
      for (std::size_t part = 0; part < kParts; ++part) {
        hn::StoreU(sums[r][k][part], Floats(), lanes + part * kLanes);
      }
      for (std::size_t j = body; j < s.columns; ++j) lanes[j - body] += m[r][j] * q[k * s.q_stride + j];
      for (std::size_t half = kSums / 2; half > 0; half /= 2) {
        for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      }
      before[r][k] = lanes[0];
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t k = 0; k < K; ++k) call.p[(first + k) * s.p_stride + row + r] = before[r][k];
  }
}

/// Applies error feedback to one row, for ranks that are not unrolled.
HWY_INLINE void feed_back_row(const LowRankCall& call, std::size_t row) {
  const LowRankShape& s = call.shape;
  float* const m = call.m + row * s.columns;
  const float* const gradients = call.gradients + row * s.columns;
  std::size_t j = 0;
  for (; s.columns - j >= kLanes; j += kLanes) {
    FloatVector sum = hn::Mul(hn::Set(Floats(), call.p[row]), load(call.q_before + j));
    for (std::size_t k = 1; k < s.rank; ++k) {
      const FloatVector column = load(call.q_before + k * s.q_stride + j);
      sum = hn::Add(sum, hn::Mul(hn::Set(Floats(), call.p[k * s.p_stride + row]), column));
    }
    const FloatVector x = fed_back<Feedback::errors_of_products>(load(gradients + j), load(m + j), sum);
    hn::StoreU(x, Floats(), m + j);
  }
  for (; j < s.columns; ++j) {
    m[j] = gradients[j] + finite_or_zero(m[j] - product_at(s, call.p, call.q_before, row, j));
  }
}

/// The number of rows per tile that keeps the sums in registers.
template <std::size_t K>
inline constexpr std::size_t kRowsAtOnce = [] {
  constexpr std::size_t kRegisters = kLanes == 16 ? 16 : 8;
  constexpr std::size_t kRows = kRegisters / (K * kParts);
  return kRows < 1 ? 1 : kRows > 4 ? 4 : kRows;
}();

template <std::size_t K, Feedback F>
HWY_NOINLINE void all_times_q(const LowRankCall& call, std::size_t begin, std::size_t end, std::size_t first) {
  std::size_t row = begin;
  for (; end - row >= kRowsAtOnce<K>; row += kRowsAtOnce<K>) rows_times_q<K, kRowsAtOnce<K>, F>(call, row, first);
  for (; row < end; ++row) rows_times_q<K, 1, F>(call, row, first);
}

template <Feedback F>
HWY_INLINE void some_times_q(const LowRankCall& call, std::size_t begin, std::size_t end, std::size_t first,
                             std::size_t count) {
  switch (count) {
    case 1: return all_times_q<1, F>(call, begin, end, first);
    case 2: return all_times_q<2, F>(call, begin, end, first);
    case 3: return all_times_q<3, F>(call, begin, end, first);
    default: return all_times_q<kUnrolledRank, F>(call, begin, end, first);
  }
}

/// For ranks that are not unrolled: passes over a few cached rows several times.
template <Feedback F>
HWY_INLINE void in_blocks_times_q(const LowRankCall& call) {
  constexpr std::size_t kRows = 4;
  const LowRankShape& s = call.shape;
  for (std::size_t row = 0; row < s.rows; row += kRows) {
    const std::size_t end = s.rows - row < kRows ? s.rows : row + kRows;
    std::size_t first = 0;
    if constexpr (F == Feedback::errors) {
      all_times_q<kUnrolledRank, F>(call, row, end, 0);
      first = kUnrolledRank;
    } else if constexpr (F == Feedback::errors_of_products) {
      for (std::size_t i = row; i < end; ++i) feed_back_row(call, i);
    }
    for (; first < s.rank; first += kUnrolledRank) {
      const std::size_t count = s.rank - first < kUnrolledRank ? s.rank - first : kUnrolledRank;
      some_times_q<Feedback::none>(call, row, end, first, count);
    }
  }
}

template <Feedback F>
HWY_NOINLINE void matrix_times_q(const LowRankCall& call) {
  if (call.shape.rank <= kUnrolledRank) some_times_q<F>(call, 0, call.shape.rows, 0, call.shape.rank);
  else in_blocks_times_q<F>(call);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
