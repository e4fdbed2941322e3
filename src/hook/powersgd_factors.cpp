// PowerSGD factors: initialization, orthonormalization, and products with matrices that may end in a partial row.
#include "hook/powersgd_factors.hpp"

#include <algorithm>
#include <limits>

#include "core/hash.hpp"
#include "kernel/counter_rng.hpp"
#include "kernel/find_nonfinite.hpp"
#include "kernel/gram_schmidt.hpp"

namespace hookline::hook {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

void zero_missing_rows(const PowerSGDMatrix& matrix, float* p) {
  const std::size_t present_rows = (matrix.count + matrix.columns - 1) / matrix.columns;
  for (std::size_t k = 0; k < matrix.rank && present_rows < matrix.rows; ++k) {
    std::fill(p + k * matrix.rows + present_rows, p + (k + 1) * matrix.rows, 0.0F);
  }
}

}  // namespace

void fill_random_column(const FactorKey& factor_key, std::size_t k, std::size_t count, double* column) {
  std::uint64_t key = 0;
  for (const std::uint64_t part :
       {factor_key.seed, factor_key.step, core::hash_bytes(factor_key.name), std::uint64_t{k}}) {
    key = kernel::mix_bits(key + part + kGolden);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = kernel::mix_bits(key + (i + 1) * kGolden);
    std::int64_t sum = -2 * 0xffff;
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
    column[i] = static_cast<double>(sum) / 32768;
  }
}

void init_factor(const float* previous, std::size_t count, std::size_t rank, double epsilon,
                 const FactorKey& factor_key, float* factor) {
  std::vector<double> columns(count * rank);
  if (previous) std::copy_n(previous, columns.size(), columns.begin());
  for (std::size_t k = 0; k < rank; ++k) {
    double* const column = columns.data() + k * count;
    if (previous &&
        kernel::orthonormalize_column(columns.data(), count, k, epsilon) == kernel::ColumnStatus::orthonormal)
      continue;
    fill_random_column(factor_key, k, count, column);
    kernel::orthonormalize_column(columns.data(), count, k, epsilon);
  }
  std::transform(columns.begin(), columns.end(), factor, [](double x) { return static_cast<float>(x); });
}

bool spread_nan(float* factor, std::size_t count) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(factor);
  if (kernel::find_nonfinite(DType::f32, bytes, count) == count) return false;
  std::fill_n(factor, count, std::numeric_limits<float>::quiet_NaN());
  return true;
}

void orthonormalize_factor(float* factor, std::size_t count, std::size_t rank, double epsilon) {
  if (spread_nan(factor, count * rank)) return;
  std::vector<double> columns(factor, factor + count * rank);
  for (std::size_t k = 0; k < rank; ++k) kernel::orthonormalize_column(columns.data(), count, k, epsilon);
  std::transform(columns.begin(), columns.end(), factor, [](double x) { return static_cast<float>(x); });
}

void times_q(const PowerSGDMatrix& matrix, const float* m, const float* q, float* p) {
  const kernel::LowRankShape full_rows = matrix.full_rows();
  kernel::times_q(full_rows, m, q, p);
  kernel::times_q(matrix.partial_row(), m + full_rows.rows * full_rows.columns, q, p + full_rows.rows);
  zero_missing_rows(matrix, p);
}

void feed_back_times_q(const PowerSGDMatrix& matrix, const float* gradients, float* m, const float* q_before,
                       const float* q, float* p) {
  const kernel::LowRankShape full_rows = matrix.full_rows();
  const std::size_t partial_row_offset = full_rows.rows * full_rows.columns;
  kernel::error_feedback_times_q(full_rows, gradients, m, q_before, q, p);
  kernel::error_feedback_times_q(matrix.partial_row(), gradients + partial_row_offset, m + partial_row_offset, q_before,
                                 q, p + full_rows.rows);
  zero_missing_rows(matrix, p);
}

void transposed_times_p(const PowerSGDMatrix& matrix, const float* m, const float* p, float* q) {
  const kernel::LowRankShape full_rows = matrix.full_rows();
  std::fill_n(q, matrix.columns * matrix.rank, 0.0F);
  kernel::add_transposed_times_p(full_rows, m, p, q);
  kernel::add_transposed_times_p(matrix.partial_row(), m + full_rows.rows * full_rows.columns, p + full_rows.rows, q);
}

void product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* values, kernel::StoreMode stores) {
  const kernel::LowRankShape full_rows = matrix.full_rows();
  kernel::product(full_rows, p, q, values, stores);
  kernel::product(matrix.partial_row(), p + full_rows.rows, q, values + full_rows.rows * full_rows.columns, stores);
}

void subtract_product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* m) {
  const kernel::LowRankShape full_rows = matrix.full_rows();
  kernel::subtract_product(full_rows, p, q, m);
  kernel::subtract_product(matrix.partial_row(), p + full_rows.rows, q, m + full_rows.rows * full_rows.columns);
}

}  // namespace hookline::hook
