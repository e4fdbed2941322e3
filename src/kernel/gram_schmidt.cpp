// Gram-Schmidt for each target. Dot products use sixteen partial sums on all targets.
#include "kernel/gram_schmidt.hpp"

#include <algorithm>
#include <cmath>

#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/gram_schmidt.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kSums = 16;
// A column is linearly dependent if its norm after projection is at most this fraction of its norm before. The
// remainder of an exact linear combination, rounded in double precision, is below this limit; float32 noise is above.
inline constexpr double kDependenceTolerance = 1e-9;

HWY_INLINE double dot(const double* a, const double* b, std::size_t count) {
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; count - i >= kSums; i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) sums[j] += a[i + j] * b[i + j];
  }
  for (std::size_t j = 0; i + j < count; ++j) sums[j] += a[i + j] * b[i + j];
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

ColumnStatus orthonormal_column(double* columns, std::size_t rows, std::size_t k, double epsilon) {
  double* const column = columns + k * rows;
  const double initial_norm = std::sqrt(dot(column, column, rows));
  if (!(initial_norm <= 1e300)) return ColumnStatus::not_finite;
  for (std::size_t c = 0; c < k; ++c) {
    const double* const other = columns + c * rows;
    const double projection = dot(other, column, rows);
    for (std::size_t i = 0; i < rows; ++i) column[i] -= projection * other[i];
  }
  const double norm = std::sqrt(dot(column, column, rows));
  if (norm <= kDependenceTolerance * initial_norm) {
    std::fill_n(column, rows, 0.0);
    return ColumnStatus::dependent;
  }
  const double divisor = norm + epsilon;
  for (std::size_t i = 0; i < rows; ++i) column[i] /= divisor;
  return ColumnStatus::orthonormal;
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

ColumnStatus orthonormalize_column(double* columns, std::size_t rows, std::size_t k, double epsilon, Target target) {
  return HOOKLINE_DISPATCH(target, orthonormal_column)(columns, rows, k, epsilon);
}

}  // namespace hookline::kernel
#endif
