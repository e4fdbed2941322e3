// Tests for the squared norm: its value, and identical bits on every target.
#include "kernel/squared_norm.hpp"

#include <cmath>

#include <gtest/gtest.h>

#include <hookline/kernel/norm.hpp>

namespace hookline {
namespace {

TEST(SquaredNorm, OfEveryLengthAndLayout) {
  for (std::int64_t n = 0; n < 40; ++n) {
    const Tensor t = Tensor::empty({n});
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      t.data<float>()[i] = static_cast<float>(i);
      sum += static_cast<double>(i) * static_cast<double>(i);
    }
    const Tensor norm = squared_norm(t);
    EXPECT_EQ(norm.item<double>(), sum);
    EXPECT_EQ(norm.dtype(), DType::f32);
  }
  EXPECT_EQ(squared_norm(Tensor::full({3, 4}, 2, DType::f64).slice(1, 0, 4, 2)).item<double>(), 24.0);
  EXPECT_EQ(squared_norm(Tensor::full({5}, 2, DType::f64)).dtype(), DType::f64);
  EXPECT_EQ(squared_norm(Tensor::full({5}, -3, DType::i8)).item<float>(), 45.0f);
  EXPECT_EQ(squared_norm(Tensor::full({5}, 0.5, DType::f16)).item<float>(), 1.25f);
  EXPECT_EQ(squared_norm(Tensor::full({5}, 0.5, DType::bf16)).item<float>(), 1.25f);
}

TEST(SquaredNorm, AllTargetsGiveTheSameBits) {
  const Tensor t = Tensor::empty({1003});
  for (int i = 0; i < 1003; ++i) t.data<float>()[i] = static_cast<float>(std::sin(i) * 1e3);
  const double baseline = kernel::sum_of_squares(DType::f32, t.bytes(), 1003, kernel::Target::baseline);
  for (const kernel::Target target : kernel::supported_targets()) {
    EXPECT_EQ(kernel::sum_of_squares(DType::f32, t.bytes(), 1003, target), baseline) << name(target);
  }
}

}  // namespace
}  // namespace hookline
