// PowerSGD factors: initialization, orthonormalization, and products with matrices that may end in a partial row.
#include "hook/powersgd_factors.hpp"

#include <algorithm>
#include <limits>

#include "core/hash.hpp"
#include "kernel/draws.hpp"
#include "kernel/finite.hpp"
#include "kernel/orthonormal.hpp"

namespace hookline::hook {
namespace {

constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;

void fill_zero(const PowerSGDMatrix& matrix, float* p) {
  const std::size_t there = (matrix.count + matrix.columns - 1) / matrix.columns;
  for (std::size_t k = 0; k < matrix.rank && there < matrix.rows; ++k) {
    std::fill(p + k * matrix.rows + there, p + (k + 1) * matrix.rows, 0.0F);
  }
}

}  // namespace

void draw_column(const PowerSGDDraw& draw, std::size_t k, std::size_t count, double* to) {
  std::uint64_t key = 0;
  for (const std::uint64_t part : {draw.seed, draw.step, core::hash_of(draw.name), std::uint64_t{k}}) {
    key = kernel::mix_bits(key + part + kGolden);
  }
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t bits = kernel::mix_bits(key + (i + 1) * kGolden);
    std::int64_t sum = -2 * 0xffff;
    for (int shift = 0; shift < 64; shift += 16) sum += static_cast<std::int64_t>((bits >> shift) & 0xffff);
    to[i] = static_cast<double>(sum) / 32768;
  }
}

void begin_factor(const float* from, std::size_t count, std::size_t rank, double epsilon, const PowerSGDDraw& draw,
                  float* to) {
  std::vector<double> columns(count * rank);
  if (from) std::copy_n(from, columns.size(), columns.begin());
  for (std::size_t k = 0; k < rank; ++k) {
    double* const column = columns.data() + k * count;
    if (from && kernel::orthonormalise(columns.data(), count, k, epsilon) == kernel::Column::good) continue;
    draw_column(draw, k, count, column);
    kernel::orthonormalise(columns.data(), count, k, epsilon);
  }
  std::transform(columns.begin(), columns.end(), to, [](double x) { return static_cast<float>(x); });
}

bool spread_nan(float* factor, std::size_t count) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(factor);
  if (kernel::find_not_finite(DType::f32, bytes, count) == count) return false;
  std::fill_n(factor, count, std::numeric_limits<float>::quiet_NaN());
  return true;
}

void finish_factor(float* factor, std::size_t count, std::size_t rank, double epsilon) {
  if (spread_nan(factor, count * rank)) return;
  std::vector<double> columns(factor, factor + count * rank);
  for (std::size_t k = 0; k < rank; ++k) kernel::orthonormalise(columns.data(), count, k, epsilon);
  std::transform(columns.begin(), columns.end(), factor, [](double x) { return static_cast<float>(x); });
}

void times_q(const PowerSGDMatrix& matrix, const float* m, const float* q, float* p) {
  const kernel::LowRankShape whole = matrix.whole();
  kernel::times_q(whole, m, q, p);
  kernel::times_q(matrix.cut(), m + whole.rows * whole.columns, q, p + whole.rows);
  fill_zero(matrix, p);
}

void feed_back_times_q(const PowerSGDMatrix& matrix, const float* gradients, float* m, const float* q_before,
                       const float* q, float* p) {
  const kernel::LowRankShape whole = matrix.whole();
  const std::size_t behind = whole.rows * whole.columns;
  kernel::feed_back_times_q(whole, gradients, m, q_before, q, p);
  kernel::feed_back_times_q(matrix.cut(), gradients + behind, m + behind, q_before, q, p + whole.rows);
  fill_zero(matrix, p);
}

void transposed_times_p(const PowerSGDMatrix& matrix, const float* m, const float* p, float* q) {
  const kernel::LowRankShape whole = matrix.whole();
  std::fill_n(q, matrix.columns * matrix.rank, 0.0F);
  kernel::add_transposed_times_p(whole, m, p, q);
  kernel::add_transposed_times_p(matrix.cut(), m + whole.rows * whole.columns, p + whole.rows, q);
}

void product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* values, kernel::Stores stores) {
  const kernel::LowRankShape whole = matrix.whole();
  kernel::product(whole, p, q, values, stores);
  kernel::product(matrix.cut(), p + whole.rows, q, values + whole.rows * whole.columns, stores);
}

void subtract_product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* m) {
  const kernel::LowRankShape whole = matrix.whole();
  kernel::subtract_product(whole, p, q, m);
  kernel::subtract_product(matrix.cut(), p + whole.rows, q, m + whole.rows * whole.columns);
}

}  // namespace hookline::hook
