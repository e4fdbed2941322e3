// Products of a matrix with factors of a few columns, fused with error feedback so that memory is passed over once
// each.
#pragma once

#include <cstddef>

#include "kernel/stores.hpp"
#include "kernel/target.hpp"

namespace hookline::kernel {

/// A matrix M lies row after row. Its factors P (rows x rank) and Q (columns x rank) lie column after column, and the
/// columns of each begin `p_stride` and `q_stride` elements apart.
struct LowRankShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t rank = 0;
  std::size_t p_stride = 0;
  std::size_t q_stride = 0;
};

// All of it is float32: sixteen sums for a product along a row, whatever the width of the registers, rows added in
// fours, and no fused multiply-add, so that all targets give the same bits. The target must be among
// supported_targets().

/// P = M Q.
void times_q(const LowRankShape& shape, const float* m, const float* q, float* p, Target target = best_target());

/// M = gradients + errors and P = M Q in one pass. The errors are M - P Q_before^T of what M and P were before, or 0
/// where that is no finite number; where `q_before` is null they are M.
void feed_back_times_q(const LowRankShape& shape, const float* gradients, float* m, const float* q_before,
                       const float* q, float* p, Target target = best_target());

/// Q += M^T P.
void add_transposed_times_p(const LowRankShape& shape, const float* m, const float* p, float* q,
                            Target target = best_target());

/// values = P Q^T.
void product(const LowRankShape& shape, const float* p, const float* q, float* values,
             Stores stores = Stores::automatic, Target target = best_target());

/// M -= P Q^T, or 0 where that is no finite number: the errors that feed_back_times_q would add.
void subtract_product(const LowRankShape& shape, const float* p, const float* q, float* m,
                      Target target = best_target());

}  // namespace hookline::kernel
