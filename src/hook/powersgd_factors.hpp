// PowerSGD factors of a matrix: initialization, orthonormalization and products.
#pragma once

#include <cstdint>
#include <string_view>

#include "hook/powersgd_plan.hpp"

namespace hookline::hook {

/// Seed of a matrix's random factors, equal on all ranks.
struct PowerSGDDraw {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::string_view name;
};

/// Fills column `k` with approximately normal numbers. Each is a sum of four uniform numbers, which, unlike logarithms,
/// is bitwise portable.
void draw_column(const PowerSGDDraw& draw, std::size_t k, std::size_t count, double* to);

/// Writes an orthonormal initial factor with `count` rows, made from `previous`. Columns that are zero or not finite,
/// and all columns if `previous` is null, are random.
void begin_factor(const float* from, std::size_t count, std::size_t rank, double epsilon, const PowerSGDDraw& draw,
                  float* to);

/// Orthonormalizes the columns of a factor; linearly dependent columns become zero. If any element is not finite, all
/// become NaN.
void finish_factor(float* factor, std::size_t count, std::size_t rank, double epsilon);

/// If any element is not finite, sets all to the same quiet NaN and returns true.
bool spread_nan(float* factor, std::size_t count);

// Products that treat missing elements of the matrix as zeros; see kernel/low_rank.hpp.
void times_q(const PowerSGDMatrix& matrix, const float* m, const float* q, float* p);
void feed_back_times_q(const PowerSGDMatrix& matrix, const float* gradients, float* m, const float* q_before,
                       const float* q, float* p);
void transposed_times_p(const PowerSGDMatrix& matrix, const float* m, const float* p, float* q);
void product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* values, kernel::Stores stores);
void subtract_product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* m);

}  // namespace hookline::hook
