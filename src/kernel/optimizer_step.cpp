// Optimizer steps for each target. The tail uses the same code with one-element vectors.
#include "kernel/optimizer_step.hpp"

#include "kernel/versions.hpp"
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

/// Steps full vectors of D starting at `i`. Returns the index of the first element not stepped.
template <bool kMomentum, class D, class T = hn::TFromD<D>>
HWY_INLINE std::size_t sgd_vectors(D d, const SgdArrays<T>& a, std::size_t i, std::size_t count, const SgdStep& step) {
  const auto scale = hn::Set(d, static_cast<T>(step.scale));
  const auto lr = hn::Set(d, static_cast<T>(step.lr));
  const auto momentum = hn::Set(d, static_cast<T>(step.momentum));
  const auto fresh = hn::Set(d, static_cast<T>(1 - step.dampening));
  const auto decay = hn::Set(d, static_cast<T>(step.weight_decay));
  const bool decays = step.weight_decay != 0;
  const bool first = step.first;
  const bool nesterov = step.nesterov;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    const auto p = hn::LoadU(d, a.parameters + i);
    auto g = hn::Mul(hn::LoadU(d, a.gradients + i), scale);
    if (decays) g = hn::Add(g, hn::Mul(p, decay));
    if constexpr (kMomentum) {
      auto b = g;
      if (!first) b = hn::Add(hn::Mul(hn::LoadU(d, a.momentum + i), momentum), hn::Mul(g, fresh));
      hn::StoreU(b, d, a.momentum + i);
      g = nesterov ? hn::Add(g, hn::Mul(b, momentum)) : b;
    }
    hn::StoreU(hn::Sub(p, hn::Mul(g, lr)), d, a.parameters + i);
  }
  return i;
}

template <bool kMomentum, class T>
HWY_NOINLINE void sgd(const SgdArrays<T>& arrays, std::size_t count, const SgdStep& step) {
  const std::size_t done = sgd_vectors<kMomentum>(hn::ScalableTag<T>(), arrays, 0, count, step);
  sgd_vectors<kMomentum>(hn::CappedTag<T, 1>(), arrays, done, count, step);
}

template <class T>
void sgd_of(std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
            const SgdStep& step) {
  const SgdArrays<T> arrays{reinterpret_cast<T*>(parameters), reinterpret_cast<const T*>(gradients),
                            reinterpret_cast<T*>(momentum)};
  if (momentum) sgd<true>(arrays, count, step);
  else sgd<false>(arrays, count, step);
}

void sgd_step_of(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
                 const SgdStep& step) {
  if (dtype == DType::f64) sgd_of<double>(parameters, gradients, momentum, count, step);
  else sgd_of<float>(parameters, gradients, momentum, count, step);
}

template <class T>
struct AdamArrays {
  T* parameters;
  const T* gradients;
  T* first;
  T* second;
  T* largest;
};

template <bool kLargest, class D, class T = hn::TFromD<D>>
HWY_INLINE std::size_t adam_vectors(D d, const AdamArrays<T>& a, std::size_t i, std::size_t count,
                                    const AdamStep& step) {
  const auto scale = hn::Set(d, static_cast<T>(step.scale));
  const auto fresh1 = hn::Set(d, static_cast<T>(1 - step.beta1));
  const auto beta2 = hn::Set(d, static_cast<T>(step.beta2));
  const auto fresh2 = hn::Set(d, static_cast<T>(1 - step.beta2));
  const auto eps = hn::Set(d, static_cast<T>(step.eps));
  const auto decay = hn::Set(d, static_cast<T>(step.weight_decay));
  const auto shrink = hn::Set(d, static_cast<T>(step.shrink));
  const auto size = hn::Set(d, static_cast<T>(step.step_size));
  const auto second_scale = hn::Set(d, static_cast<T>(step.second_scale));
  const bool decays = step.weight_decay != 0;
  for (; i + hn::Lanes(d) <= count; i += hn::Lanes(d)) {
    auto p = hn::LoadU(d, a.parameters + i);
    auto g = hn::Mul(hn::LoadU(d, a.gradients + i), scale);
    if (decays) g = hn::Add(g, hn::Mul(p, decay));
    p = hn::Mul(p, shrink);
    auto m = hn::LoadU(d, a.first + i);
    m = hn::Add(m, hn::Mul(hn::Sub(g, m), fresh1));
    hn::StoreU(m, d, a.first + i);
    auto v = hn::Add(hn::Mul(hn::LoadU(d, a.second + i), beta2), hn::Mul(hn::Mul(g, fresh2), g));
    hn::StoreU(v, d, a.second + i);
    if constexpr (kLargest) {
      const auto before = hn::LoadU(d, a.largest + i);
      v = hn::IfThenElse(hn::Lt(v, before), before, v);  // propagates NaN, unlike Max
      hn::StoreU(v, d, a.largest + i);
    }
    const auto divisor = hn::Add(hn::Mul(hn::Sqrt(v), second_scale), eps);
    hn::StoreU(hn::Sub(p, hn::Div(hn::Mul(m, size), divisor)), d, a.parameters + i);
  }
  return i;
}

template <bool kLargest, class T>
HWY_NOINLINE void adam(const AdamArrays<T>& arrays, std::size_t count, const AdamStep& step) {
  const std::size_t done = adam_vectors<kLargest>(hn::ScalableTag<T>(), arrays, 0, count, step);
  adam_vectors<kLargest>(hn::CappedTag<T, 1>(), arrays, done, count, step);
}

template <class T>
void adam_of(std::byte* parameters, const std::byte* gradients, std::byte* first, std::byte* second, std::byte* largest,
             std::size_t count, const AdamStep& step) {
  const AdamArrays<T> arrays{reinterpret_cast<T*>(parameters), reinterpret_cast<const T*>(gradients),
                             reinterpret_cast<T*>(first), reinterpret_cast<T*>(second), reinterpret_cast<T*>(largest)};
  if (largest) adam<true>(arrays, count, step);
  else adam<false>(arrays, count, step);
}

void adam_step_of(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* first, std::byte* second,
                  std::byte* largest, std::size_t count, const AdamStep& step) {
  if (dtype == DType::f64) adam_of<double>(parameters, gradients, first, second, largest, count, step);
  else adam_of<float>(parameters, gradients, first, second, largest, count, step);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline::kernel {

void sgd_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
              const SgdStep& step, Target target) {
  HOOKLINE_VERSION(target, sgd_step_of)(dtype, parameters, gradients, momentum, count, step);
}

void adam_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* first, std::byte* second,
               std::byte* largest, std::size_t count, const AdamStep& step, Target target) {
  HOOKLINE_VERSION(target, adam_step_of)(dtype, parameters, gradients, first, second, largest, count, step);
}

}  // namespace hookline::kernel
#endif
