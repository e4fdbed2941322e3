// Optimizer steps for each target. The tail uses the same code with one-element vectors.
#include "kernel/optimizer_step.hpp"

#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/optimizer_step.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <class T>
struct SgdArrays {
  T* parameters;
  const T* gradients;
  T* momentum;
};

/// Updates full vectors of D starting at `i`. Returns the index of the first element not updated.
template <bool kMomentum, class D, class T = hn::TFromD<D>>
HWY_INLINE std::size_t sgd_vectors(D d, const SgdArrays<T>& a, std::size_t i, std::size_t count,
                                   const SgdCoefficients& coefficients) {
  const auto scale = hn::Set(d, static_cast<T>(coefficients.scale));
  const auto lr = hn::Set(d, static_cast<T>(coefficients.lr));
  const auto momentum = hn::Set(d, static_cast<T>(coefficients.momentum));
  const auto gradient_weight = hn::Set(d, static_cast<T>(1 - coefficients.dampening));
  const auto decay = hn::Set(d, static_cast<T>(coefficients.weight_decay));
  const bool decays = coefficients.weight_decay != 0;
  const bool first = coefficients.first_step;
  const bool nesterov = coefficients.nesterov;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto p = hn::LoadU(d, a.parameters + i);
    auto g = hn::Mul(hn::LoadU(d, a.gradients + i), scale);
    if (decays) g = hn::Add(g, hn::Mul(p, decay));
    if constexpr (kMomentum) {
      auto b = g;
      if (!first) b = hn::Add(hn::Mul(hn::LoadU(d, a.momentum + i), momentum), hn::Mul(g, gradient_weight));
      hn::StoreU(b, d, a.momentum + i);
      g = nesterov ? hn::Add(g, hn::Mul(b, momentum)) : b;
    }
    hn::StoreU(hn::Sub(p, hn::Mul(g, lr)), d, a.parameters + i);
  }
  return i;
}

template <bool kMomentum, class T>
HWY_NOINLINE void sgd(const SgdArrays<T>& arrays, std::size_t count, const SgdCoefficients& coefficients) {
  const std::size_t done = sgd_vectors<kMomentum>(hn::ScalableTag<T>(), arrays, 0, count, coefficients);
  sgd_vectors<kMomentum>(hn::CappedTag<T, 1>(), arrays, done, count, coefficients);
}

template <class T>
void sgd_of(std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
            const SgdCoefficients& coefficients) {
  const SgdArrays<T> arrays{reinterpret_cast<T*>(parameters), reinterpret_cast<const T*>(gradients),
                            reinterpret_cast<T*>(momentum)};
  if (momentum) sgd<true>(arrays, count, coefficients);
  else sgd<false>(arrays, count, coefficients);
}

void sgd_step_of(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
                 const SgdCoefficients& coefficients) {
  if (dtype == DType::f64) sgd_of<double>(parameters, gradients, momentum, count, coefficients);
  else sgd_of<float>(parameters, gradients, momentum, count, coefficients);
}

template <class T>
struct AdamArrays {
  T* parameters;
  const T* gradients;
  T* exp_avg;
  T* exp_avg_sq;
  T* max_exp_avg_sq;
};

template <bool kAmsgrad, class D, class T = hn::TFromD<D>>
HWY_INLINE std::size_t adam_vectors(D d, const AdamArrays<T>& a, std::size_t i, std::size_t count,
                                    const AdamCoefficients& coefficients) {
  const auto scale = hn::Set(d, static_cast<T>(coefficients.scale));
  const auto gradient_weight1 = hn::Set(d, static_cast<T>(1 - coefficients.beta1));
  const auto beta2 = hn::Set(d, static_cast<T>(coefficients.beta2));
  const auto gradient_weight2 = hn::Set(d, static_cast<T>(1 - coefficients.beta2));
  const auto eps = hn::Set(d, static_cast<T>(coefficients.eps));
  const auto decay = hn::Set(d, static_cast<T>(coefficients.weight_decay));
  const auto decoupled_decay = hn::Set(d, static_cast<T>(coefficients.decoupled_decay));
  const auto size = hn::Set(d, static_cast<T>(coefficients.step_size));
  const auto exp_avg_sq_scale = hn::Set(d, static_cast<T>(coefficients.exp_avg_sq_scale));
  const bool decays = coefficients.weight_decay != 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    auto p = hn::LoadU(d, a.parameters + i);
    auto g = hn::Mul(hn::LoadU(d, a.gradients + i), scale);
    if (decays) g = hn::Add(g, hn::Mul(p, decay));
    p = hn::Mul(p, decoupled_decay);
    auto m = hn::LoadU(d, a.exp_avg + i);
    m = hn::Add(m, hn::Mul(hn::Sub(g, m), gradient_weight1));
    hn::StoreU(m, d, a.exp_avg + i);
    auto v = hn::Add(hn::Mul(hn::LoadU(d, a.exp_avg_sq + i), beta2), hn::Mul(hn::Mul(g, gradient_weight2), g));
    hn::StoreU(v, d, a.exp_avg_sq + i);
    if constexpr (kAmsgrad) {
      const auto before = hn::LoadU(d, a.max_exp_avg_sq + i);
      v = hn::IfThenElse(hn::Lt(v, before), before, v);  // propagates NaN, unlike Max
      hn::StoreU(v, d, a.max_exp_avg_sq + i);
    }
    const auto divisor = hn::Add(hn::Mul(hn::Sqrt(v), exp_avg_sq_scale), eps);
    hn::StoreU(hn::Sub(p, hn::Div(hn::Mul(m, size), divisor)), d, a.parameters + i);
  }
  return i;
}

template <bool kAmsgrad, class T>
HWY_NOINLINE void adam(const AdamArrays<T>& arrays, std::size_t count, const AdamCoefficients& coefficients) {
  const std::size_t done = adam_vectors<kAmsgrad>(hn::ScalableTag<T>(), arrays, 0, count, coefficients);
  adam_vectors<kAmsgrad>(hn::CappedTag<T, 1>(), arrays, done, count, coefficients);
}

template <class T>
void adam_of(std::byte* parameters, const std::byte* gradients, std::byte* exp_avg, std::byte* exp_avg_sq,
             std::byte* max_exp_avg_sq, std::size_t count, const AdamCoefficients& coefficients) {
  const AdamArrays<T> arrays{reinterpret_cast<T*>(parameters), reinterpret_cast<const T*>(gradients),
                             reinterpret_cast<T*>(exp_avg), reinterpret_cast<T*>(exp_avg_sq),
                             reinterpret_cast<T*>(max_exp_avg_sq)};
  if (max_exp_avg_sq) adam<true>(arrays, count, coefficients);
  else adam<false>(arrays, count, coefficients);
}

void adam_step_of(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* exp_avg,
                  std::byte* exp_avg_sq, std::byte* max_exp_avg_sq, std::size_t count,
                  const AdamCoefficients& coefficients) {
  if (dtype == DType::f64)
    adam_of<double>(parameters, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, count, coefficients);
  else adam_of<float>(parameters, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, count, coefficients);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

void sgd_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
              const SgdCoefficients& coefficients, Target target) {
  HOOKLINE_DISPATCH(target, sgd_step_of)(dtype, parameters, gradients, momentum, count, coefficients);
}

void adam_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* exp_avg,
               std::byte* exp_avg_sq, std::byte* max_exp_avg_sq, std::size_t count,
               const AdamCoefficients& coefficients, Target target) {
  HOOKLINE_DISPATCH(target, adam_step_of)(dtype, parameters, gradients, exp_avg, exp_avg_sq, max_exp_avg_sq, count,
                                          coefficients);
}

}  // namespace hookline::kernel
#endif
