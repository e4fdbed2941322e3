// Factors of a matrix: drawn, orthonormal, and multiplied with what there is of the matrix.
#pragma once

#include <cstdint>
#include <string_view>

#include "hook/powersgd_plan.hpp"

namespace hookline::hook {

/// What the factors of a matrix are drawn by, the same on all ranks.
struct PowerSGDDraw {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::string_view name;
};

/// Writes numbers of about a normal distribution for column `k`: sums of four uniform ones, which unlike a logarithm
/// are the same on every platform.
void draw_column(const PowerSGDDraw& draw, std::size_t k, std::size_t count, double* to);

/// An orthonormal factor to begin with, of `count` rows: the one given where there is any; columns of it that are zero
/// or not finite, and all where it is null, are drawn.
void begin_factor(const float* from, std::size_t count, std::size_t rank, double epsilon, const PowerSGDDraw& draw,
                  float* to);

/// Makes a factor's columns orthonormal, and zero where nothing is left. All of it is NaN where any of it is not
/// finite.
void finish_factor(float* factor, std::size_t count, std::size_t rank, double epsilon);

/// All of it NaN, the one quiet NaN, where any of it is not finite: true then.
bool spread_nan(float* factor, std::size_t count);

// A matrix with its missing elements as zeros; see kernel/low_rank.hpp.
void times_q(const PowerSGDMatrix& matrix, const float* m, const float* q, float* p);
void feed_back_times_q(const PowerSGDMatrix& matrix, const float* gradients, float* m, const float* q_before,
                       const float* q, float* p);
void transposed_times_p(const PowerSGDMatrix& matrix, const float* m, const float* p, float* q);
void product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* values, kernel::Stores stores);
void subtract_product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* m);

}  // namespace hookline::hook
