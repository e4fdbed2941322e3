// Products of a matrix with low-rank factors, fused with error feedback to read the matrix once.
#pragma once

#include <cstddef>

#include "kernel/store_mode.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// The shape of a row-major matrix M and of its column-major factors P (rows x rank) and Q (columns x rank), whose
/// columns are `p_stride` and `q_stride` elements apart.
struct LowRankShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
  std::size_t p_stride = 0;
  std::size_t q_stride = 0;
};

// All data is float32. Dot products along a row use sixteen partial sums, rows are added in groups of four, and no
// fused multiply-add is used, so that results are bitwise identical on all targets. The target must be among
// supported_targets().

/// P = M Q.
void times_q(const LowRankShape& shape, const float* m, const float* q, float* p, Target target = best_target());

/// Computes M = gradients + residual and P = M Q in one pass. The residual is M - P previous_q^T with the old M and P,
/// or 0 where that is not finite; if `previous_q` is null, it is the old M.
void error_feedback_times_q(const LowRankShape& shape, const float* gradients, float* m, const float* previous_q,
                            const float* q, float* p, Target target = best_target());

/// Q += M^T P.
void add_transposed_times_p(const LowRankShape& shape, const float* m, const float* p, float* q,
                            Target target = best_target());

/// values = P Q^T.
void product(const LowRankShape& shape, const float* p, const float* q, float* values,
             StoreMode store_mode = StoreMode::automatic, Target target = best_target());

/// M -= P Q^T, or 0 where that is not finite: the residual that error_feedback_times_q would add.
void subtract_product(const LowRankShape& shape, const float* p, const float* q, float* m,
                      Target target = best_target());

}  // namespace hookline::kernel
