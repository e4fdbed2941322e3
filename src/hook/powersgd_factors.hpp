// PowerSGD factors of a matrix: initialization, orthonormalization and products.
#pragma once

#include <cstdint>
#include <string_view>

#include "hook/powersgd_plan.hpp"

namespace hookline::hook {

/// Seed of a matrix's random factors, equal on all ranks.
struct FactorKey {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;
  std::string_view name;
};

/// Fills column `k` with approximately normal numbers. Each is a sum of four uniform numbers, which, unlike logarithms,
/// is bitwise portable.
void fill_random_column(const FactorKey& factor_key, std::size_t k, std::size_t count, double* column);

/// Writes an orthonormal initial factor with `count` rows, made from `previous`. Columns that are zero or not finite,
/// and all columns if `previous` is null, are random.
void init_factor(const float* previous, std::size_t count, std::size_t rank, double epsilon,
                 const FactorKey& factor_key, float* factor);

/// Orthonormalizes the columns of a factor; linearly dependent columns become zero. If any element is not finite, all
/// become NaN.
void orthonormalize_factor(float* factor, std::size_t count, std::size_t rank, double epsilon);

/// If any element is not finite, sets all to the same quiet NaN and returns true.
bool spread_nan(float* factor, std::size_t count);

// Products that treat missing elements of the matrix as zeros; see kernel/low_rank.hpp.
void times_q(const PowerSGDMatrix& matrix, const float* m, const float* q, float* p);
void feed_back_times_q(const PowerSGDMatrix& matrix, const float* gradients, float* m, const float* q_before,
                       const float* q, float* p);
void transposed_times_p(const PowerSGDMatrix& matrix, const float* m, const float* p, float* q);
void product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* values, kernel::StoreMode stores);
void subtract_product(const PowerSGDMatrix& matrix, const float* p, const float* q, float* m);

}  // namespace hookline::hook
