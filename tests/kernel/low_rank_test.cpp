// Tests for low-rank products: values for many shapes, and identical bits on every target.
#include "kernel/low_rank.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace hookline::kernel {
namespace {

using Floats = std::vector<float>;

Floats numbers(std::size_t count, int seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) {
    values[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + seed) + 0.1 * seed);
  }
  return values;
}

bool same(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/// Test data whose factor columns have a stride larger than their length.
struct Case {
  LowRankShape shape;
  Floats m, gradients, p, q, previous_q;

  Case(std::size_t rows, std::size_t columns, std::size_t rank)
      : shape{rows, columns, rank, rows + 3, columns + 2},
        m(numbers(rows * columns, 1)),
        gradients(numbers(rows * columns, 2)),
        p(numbers(rank * (rows + 3), 3)),
        q(numbers(rank * (columns + 2), 4)),
        previous_q(numbers(rank * (columns + 2), 5)) {}

  double product_at(const Floats& right, std::size_t i, std::size_t j) const {
    double sum = 0;
    for (std::size_t k = 0; k < shape.rank; ++k) {
      sum += static_cast<double>(p[k * shape.p_stride + i]) * static_cast<double>(right[k * shape.q_stride + j]);
    }
    return sum;
  }
};

void for_each_case(const std::function<void(Case, Target)>& body) {
  for (const std::size_t rows : {1U, 2U, 3U, 4U, 5U, 9U}) {
    for (const std::size_t columns : {1U, 2U, 15U, 16U, 17U, 33U, 130U}) {
      for (const std::size_t rank : {1U, 2U, 3U, 4U, 5U, 8U, 11U}) {
        for (const Target target : supported_targets()) {
          SCOPED_TRACE(::testing::Message() << rows << " x " << columns << ", rank " << rank << ", " << name(target));
          body(Case(rows, columns, rank), target);
        }
      }
    }
  }
}

TEST(LowRank, TimesQ) {
  for_each_case([](Case c, Target target) {
    const LowRankShape& s = c.shape;
    Floats p = c.p;
    times_q(s, c.m.data(), c.q.data(), p.data(), target);
    for (std::size_t k = 0; k < s.rank; ++k) {
      for (std::size_t i = 0; i < s.p_stride; ++i) {
        double sum = 0;
        for (std::size_t j = 0; j < s.columns && i < s.rows; ++j) {
          sum += static_cast<double>(c.m[i * s.columns + j]) * static_cast<double>(c.q[k * s.q_stride + j]);
        }
        const double expected = i < s.rows ? sum : c.p[k * s.p_stride + i];  // padding between columns is unchanged
        EXPECT_NEAR(p[k * s.p_stride + i], expected, 1e-4);
      }
    }
    Floats reference = c.p;
    times_q(s, c.m.data(), c.q.data(), reference.data(), Target::baseline);
    EXPECT_TRUE(same(p, reference));
  });
}

TEST(LowRank, AddsTheResidualOfThePreviousProduct) {
  for_each_case([](Case c, Target target) {
    const LowRankShape& s = c.shape;
    for (const bool products : {true, false}) {
      Floats m = c.m, p = c.p, m0 = c.m, p0 = c.p;
      const float* const previous = products ? c.previous_q.data() : nullptr;
      error_feedback_times_q(s, c.gradients.data(), m.data(), previous, c.q.data(), p.data(), target);
      for (std::size_t i = 0; i < s.rows; ++i) {
        for (std::size_t j = 0; j < s.columns; ++j) {
          const std::size_t at = i * s.columns + j;
          const double error = c.m[at] - (products ? c.product_at(c.previous_q, i, j) : 0);
          EXPECT_NEAR(m[at], c.gradients[at] + error, 1e-4);
        }
      }
      Floats plain = c.p;
      times_q(s, m.data(), c.q.data(), plain.data(), target);
      EXPECT_TRUE(same(p, plain));
      error_feedback_times_q(s, c.gradients.data(), m0.data(), previous, c.q.data(), p0.data(), Target::baseline);
      EXPECT_TRUE(same(m, m0));
      EXPECT_TRUE(same(p, p0));
    }
  });
}

TEST(LowRank, StoredAndRecomputedResidualsHaveTheSameBits) {
  for_each_case([](Case c, Target target) {
    const LowRankShape& s = c.shape;
    Floats m = c.m, p = c.p, errors = c.m, p_of_errors = c.p;
    error_feedback_times_q(s, c.gradients.data(), m.data(), c.previous_q.data(), c.q.data(), p.data(), target);
    subtract_product(s, c.p.data(), c.previous_q.data(), errors.data(), target);
    error_feedback_times_q(s, c.gradients.data(), errors.data(), nullptr, c.q.data(), p_of_errors.data(), target);
    EXPECT_TRUE(same(m, errors));
    EXPECT_TRUE(same(p, p_of_errors));
  });
}

TEST(LowRank, AddsTransposedTimesP) {
  for_each_case([](Case c, Target target) {
    const LowRankShape& s = c.shape;
    Floats q = c.q, reference = c.q;
    add_transposed_times_p(s, c.m.data(), c.p.data(), q.data(), target);
    for (std::size_t k = 0; k < s.rank; ++k) {
      for (std::size_t j = 0; j < s.columns; ++j) {
        double sum = c.q[k * s.q_stride + j];
        for (std::size_t i = 0; i < s.rows; ++i) {
          sum += static_cast<double>(c.m[i * s.columns + j]) * static_cast<double>(c.p[k * s.p_stride + i]);
        }
        EXPECT_NEAR(q[k * s.q_stride + j], sum, 1e-4);
      }
    }
    add_transposed_times_p(s, c.m.data(), c.p.data(), reference.data(), Target::baseline);
    EXPECT_TRUE(same(q, reference));
  });
}

TEST(LowRank, ProductOfTheFactors) {
  for_each_case([](Case c, Target target) {
    const LowRankShape& s = c.shape;
    Floats reference(c.m.size());
    product(s, c.p.data(), c.q.data(), reference.data(), StoreMode::cached, Target::baseline);
    for (std::size_t i = 0; i < s.rows; ++i) {
      for (std::size_t j = 0; j < s.columns; ++j) {
        EXPECT_NEAR(reference[i * s.columns + j], c.product_at(c.q, i, j), 1e-4);
      }
    }
    for (const StoreMode store_mode : {StoreMode::cached, StoreMode::streaming}) {
      Floats values(c.m.size() + 1,
                    -1.0F);  // aligned to one element only, with a guard element at the end
      product(s, c.p.data(), c.q.data(), values.data(), store_mode, target);
      EXPECT_EQ(values.back(), -1.0F);
      values.pop_back();
      EXPECT_TRUE(same(values, reference));
      Floats shifted(c.m.size() + 1);
      product(s, c.p.data(), c.q.data(), shifted.data() + 1, store_mode, target);
      shifted.erase(shifted.begin());
      EXPECT_TRUE(same(shifted, reference));
    }
  });
}

TEST(LowRank, NonFiniteResidualsAreDropped) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinite = std::numeric_limits<float>::infinity();
  for (const Target target : supported_targets()) {
    for (const std::size_t rank : {1U, 4U, 6U}) {
      Case c(5, 37, rank);
      c.m[3] = nan;
      c.m[40] = -infinite;
      c.m[36] = infinite;  // in the last columns
      c.gradients[50] = nan;
      Floats errors = c.m;
      subtract_product(c.shape, c.p.data(), c.previous_q.data(), errors.data(), target);
      for (const std::size_t at : {3U, 40U, 36U}) EXPECT_EQ(errors[at], 0);
      for (float* previous : {c.previous_q.data(), static_cast<float*>(nullptr)}) {
        Floats m = c.m, p = c.p;
        error_feedback_times_q(c.shape, c.gradients.data(), m.data(), previous, c.q.data(), p.data(), target);
        for (const std::size_t at : {3U, 40U, 36U}) EXPECT_EQ(m[at], c.gradients[at]);
        EXPECT_TRUE(std::isnan(m[50]));
        EXPECT_TRUE(std::isfinite(p[0]));
        EXPECT_TRUE(std::isnan(p[1]));
      }
    }
  }
}

}  // namespace
}  // namespace hookline::kernel
