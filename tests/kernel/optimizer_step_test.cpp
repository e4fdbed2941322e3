// Tests for optimizer steps: comparison with scalar loops, and identical bits on every target.
#include "kernel/optimizer_step.hpp"

#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

namespace hookline::kernel {
namespace {

template <class T>
struct Data {
  std::vector<T> p, g, a, b, c;
  explicit Data(std::size_t count) : p(count), g(count), a(count), b(count), c(count) {
    for (std::size_t i = 0; i < count; ++i) {
      const auto x = static_cast<double>(i);
      p[i] = static_cast<T>(std::sin(x));
      g[i] = static_cast<T>(std::cos(3 * x));
      a[i] = static_cast<T>(std::sin(5 * x));
      b[i] = static_cast<T>(1 + std::sin(7 * x));
      c[i] = static_cast<T>(1 + std::cos(11 * x));
    }
  }
  bool operator==(const Data&) const = default;
};

template <class T>
std::byte* bytes(std::vector<T>& v) {
  return reinterpret_cast<std::byte*>(v.data());
}

template <class T>
constexpr DType kDType = sizeof(T) == 4 ? DType::f32 : DType::f64;

template <class T>
Data<T> sgd_loop(Data<T> d, const SgdCoefficients& s, bool momentum) {
  for (std::size_t i = 0; i < d.p.size(); ++i) {
    T g = d.g[i] * static_cast<T>(s.scale);
    if (s.weight_decay != 0) g += d.p[i] * static_cast<T>(s.weight_decay);
    if (momentum) {
      d.a[i] = s.first_step ? g : d.a[i] * static_cast<T>(s.momentum) + g * static_cast<T>(1 - s.dampening);
      g = s.nesterov ? g + d.a[i] * static_cast<T>(s.momentum) : d.a[i];
    }
    d.p[i] -= g * static_cast<T>(s.lr);
  }
  return d;
}

template <class T>
Data<T> adam_loop(Data<T> d, const AdamCoefficients& s, bool largest) {
  for (std::size_t i = 0; i < d.p.size(); ++i) {
    T g = d.g[i] * static_cast<T>(s.scale);
    if (s.weight_decay != 0) g += d.p[i] * static_cast<T>(s.weight_decay);
    T p = d.p[i] * static_cast<T>(s.decoupled_decay);
    d.a[i] += (g - d.a[i]) * static_cast<T>(1 - s.beta1);
    d.b[i] = d.b[i] * static_cast<T>(s.beta2) + g * static_cast<T>(1 - s.beta2) * g;
    if (largest) d.c[i] = std::max(d.c[i], d.b[i]);
    const T divisor = std::sqrt(largest ? d.c[i] : d.b[i]) * static_cast<T>(s.exp_avg_sq_scale) + static_cast<T>(s.eps);
    d.p[i] = p - d.a[i] * static_cast<T>(s.step_size) / divisor;
  }
  return d;
}

template <class T>
void check_sgd(const SgdCoefficients& s, bool momentum) {
  for (const std::size_t count : {0U, 1U, 3U, 7U, 8U, 15U, 16U, 17U, 33U, 100U, 1003U}) {
    const Data<T> begin(count);
    const Data<T> wanted = sgd_loop(begin, s, momentum);
    for (const Target target : supported_targets()) {
      Data<T> d = begin;
      sgd_step(kDType<T>, bytes(d.p), bytes(d.g), momentum ? bytes(d.a) : nullptr, count, s, target);
      EXPECT_EQ(d, wanted) << name(target) << ", " << count;
    }
  }
}

template <class T>
void check_adam(const AdamCoefficients& s, bool largest) {
  for (const std::size_t count : {0U, 1U, 3U, 7U, 8U, 15U, 16U, 17U, 33U, 100U, 1003U}) {
    const Data<T> begin(count);
    const Data<T> wanted = adam_loop(begin, s, largest);
    for (const Target target : supported_targets()) {
      Data<T> d = begin;
      adam_step(kDType<T>, bytes(d.p), bytes(d.g), bytes(d.a), bytes(d.b), largest ? bytes(d.c) : nullptr, count, s,
                target);
      EXPECT_EQ(d, wanted) << name(target) << ", " << count;
    }
  }
}

TEST(OptimizerStep, SgdOfEveryOptionAndSize) {
  check_sgd<float>({.scale = 1, .lr = 0.1}, false);
  check_sgd<float>({.scale = -0.5, .lr = 0.1, .weight_decay = 0.01}, false);
  check_sgd<float>({.lr = 0.1, .momentum = 0.9, .first_step = true}, true);
  check_sgd<float>({.lr = 0.1, .momentum = 0.9, .dampening = 0.3, .weight_decay = 0.01}, true);
  check_sgd<float>({.lr = 0.1, .momentum = 0.9, .nesterov = true}, true);
  check_sgd<float>({.lr = 0.1, .momentum = 0.9, .nesterov = true, .first_step = true}, true);
  check_sgd<double>({.scale = 0.5, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, true);
}

TEST(OptimizerStep, AdamOfEveryOptionAndSize) {
  AdamCoefficients step{
      .scale = 1, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step_size = 0.02, .exp_avg_sq_scale = 1.7};
  check_adam<float>(step, false);
  check_adam<float>(step, true);
  check_adam<double>(step, true);
  step.weight_decay = 0.1;
  step.scale = -0.5;
  check_adam<float>(step, false);
  step.weight_decay = 0;
  step.decoupled_decay = 0.9;
  check_adam<float>(step, true);
  check_adam<double>(step, false);
}

TEST(OptimizerStep, NanStaysNan) {
  for (const Target target : supported_targets()) {
    Data<float> d(5);
    d.g[2] = std::nanf("");
    adam_step(DType::f32, bytes(d.p), bytes(d.g), bytes(d.a), bytes(d.b), bytes(d.c), 5,
              {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .step_size = 0.1}, target);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(std::isnan(d.p[i]), i == 2) << name(target);
    EXPECT_TRUE(std::isnan(d.c[2])) << name(target);
  }
}

}  // namespace
}  // namespace hookline::kernel
