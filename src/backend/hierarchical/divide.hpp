// The final division of a mean whose sum was computed in two stages.
#pragma once

#include <hookline/core/tensor.hpp>

namespace hookline::hierarchical {

/// Multiplies by `factor`, a power of two, and divides by `divisor`, with one rounding. Integers round towards zero.
inline void divide(const Tensor& values, double factor, double divisor) {
  visit_dtype(values.dtype(), [&](auto element) {
    using T = decltype(element);
    T* const data = values.data<T>();
    const std::int64_t count = values.numel();
    if constexpr (std::is_integral_v<T>) {
      const auto by = static_cast<std::int64_t>(divisor);
      for (std::int64_t i = 0; i < count; ++i) data[i] = static_cast<T>(data[i] / by);
    } else if constexpr (std::is_same_v<T, double>) {
      for (std::int64_t i = 0; i < count; ++i) data[i] = data[i] * factor / divisor;
    } else {
      const auto times = static_cast<float>(factor);
      const auto by = static_cast<float>(divisor);
      for (std::int64_t i = 0; i < count; ++i) data[i] = T(static_cast<float>(data[i]) * times / by);
    }
  });
}

}  // namespace hookline::hierarchical
