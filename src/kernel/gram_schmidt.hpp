// Gram-Schmidt orthonormalization.
#pragma once

#include <cstddef>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// The outcome of orthonormalizing a column.
enum class ColumnStatus { orthonormal, dependent, not_finite };

/// Orthogonalizes column k against columns 0 to k - 1, which must be orthonormal, and divides it by its norm plus
/// epsilon. Columns have `rows` elements each and are contiguous. Results are bitwise identical on all targets. Sets a
/// linearly dependent column to zero; does not change a column that is not finite.
ColumnStatus orthonormalize_column(double* columns, std::size_t rows, std::size_t k, double epsilon,
                                   Target target = best_target());

}  // namespace hookline::kernel
