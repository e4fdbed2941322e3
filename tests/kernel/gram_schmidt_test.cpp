// Tests for Gram-Schmidt: orthonormal and dependent columns, and identical bits on every target.
#include "kernel/gram_schmidt.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace hookline::kernel {
namespace {

std::vector<double> columns(std::size_t rows, std::size_t count) {
  std::vector<double> all(rows * count);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = std::sin(1.3 * static_cast<double>(i * i % 977) + 1);
  return all;
}

double dot(const std::vector<double>& all, std::size_t rows, std::size_t a, std::size_t b) {
  double sum = 0;
  for (std::size_t i = 0; i < rows; ++i) sum += all[a * rows + i] * all[b * rows + i];
  return sum;
}

TEST(GramSchmidt, ColumnsOfEveryLengthWithTheSameBits) {
  for (const std::size_t rows : {1U, 2U, 15U, 16U, 17U, 100U, 1003U}) {
    const std::size_t count = std::min<std::size_t>(rows, 6);
    std::vector<double> reference = columns(rows, count);
    for (std::size_t k = 0; k < count; ++k) {
      ASSERT_EQ(orthonormalize_column(reference.data(), rows, k, 0, Target::baseline), ColumnStatus::orthonormal)
          << rows << " " << k;
      for (std::size_t other = 0; other <= k; ++other) {
        EXPECT_NEAR(dot(reference, rows, k, other), k == other ? 1 : 0, 1e-12);
      }
    }
    for (const Target target : supported_targets()) {
      std::vector<double> same = columns(rows, count);
      for (std::size_t k = 0; k < count; ++k) orthonormalize_column(same.data(), rows, k, 0, target);
      EXPECT_EQ(same, reference) << name(target);
    }
  }
}

TEST(GramSchmidt, DependentColumnsBecomeZero) {
  std::vector<double> all = columns(50, 4);
  for (std::size_t i = 0; i < 50; ++i) {
    all[100 + i] = 3 * all[i] - 0.1 * all[50 + i];
    all[150 + i] = 0;
  }
  EXPECT_EQ(orthonormalize_column(all.data(), 50, 0, 0), ColumnStatus::orthonormal);
  EXPECT_EQ(orthonormalize_column(all.data(), 50, 1, 0), ColumnStatus::orthonormal);
  for (const std::size_t k : {2U, 3U}) {
    EXPECT_EQ(orthonormalize_column(all.data(), 50, k, 0), ColumnStatus::dependent);
    EXPECT_EQ(dot(all, 50, k, k), 0);
  }
}

TEST(GramSchmidt, EpsilonIsAddedToTheNorm) {
  std::vector<double> all = {3, 4};
  EXPECT_EQ(orthonormalize_column(all.data(), 2, 0, 5), ColumnStatus::orthonormal);
  EXPECT_DOUBLE_EQ(all[0], 0.3);
  EXPECT_DOUBLE_EQ(all[1], 0.4);
}

TEST(GramSchmidt, ReportsNonFiniteColumns) {
  for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    std::vector<double> all = {1, bad, 2};
    EXPECT_EQ(orthonormalize_column(all.data(), 3, 0, 0), ColumnStatus::not_finite);
  }
}

}  // namespace
}  // namespace hookline::kernel
