// Squared norm for each target: sixteen partial sums in double precision on all targets.
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <hookline/kernel/norm.hpp>

#include "kernel/squared_norm.hpp"
#include "kernel/target_dispatch.hpp"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernel/squared_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace hookline::kernel::HWY_NAMESPACE {

inline constexpr std::size_t kSums = 16;

template <class T>
HWY_INLINE double widened(T value) {
  if constexpr (std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>)
    return static_cast<double>(static_cast<float>(value));
  else return static_cast<double>(value);
}

template <class T>
HWY_NOINLINE double sum_of_squares(const std::byte* data, std::size_t count) {
  const T* x = reinterpret_cast<const T*>(data);
  double sums[kSums] = {};
  std::size_t i = 0;
  for (; i + kSums <= count; i += kSums) {
    for (std::size_t j = 0; j < kSums; ++j) {
      const double v = widened(x[i + j]);
      sums[j] += v * v;
    }
  }
  for (std::size_t j = 0; i + j < count; ++j) {
    const double v = widened(x[i + j]);
    sums[j] += v * v;
  }
  for (std::size_t half = kSums / 2; half > 0; half /= 2) {
    for (std::size_t j = 0; j < half; ++j) sums[j] += sums[j + half];
  }
  return sums[0];
}

// Does not use visit_dtype: its instantiations would be shared between targets, and the linker would keep only one.
double sum_of_squares_of(DType dtype, const std::byte* data, std::size_t count) {
  switch (dtype) {
    case DType::f64: return sum_of_squares<double>(data, count);
    case DType::f32: return sum_of_squares<float>(data, count);
    case DType::f16: return sum_of_squares<Float16>(data, count);
    case DType::bf16: return sum_of_squares<BFloat16>(data, count);
    case DType::i8: return sum_of_squares<std::int8_t>(data, count);
    case DType::u8: return sum_of_squares<std::uint8_t>(data, count);
    case DType::i16: return sum_of_squares<std::int16_t>(data, count);
    case DType::i32: return sum_of_squares<std::int32_t>(data, count);
    case DType::i64: return sum_of_squares<std::int64_t>(data, count);
    case DType::boolean: break;
  }
  return sum_of_squares<bool>(data, count);
}

}  // namespace hookline::kernel::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace hookline {
namespace kernel {

double sum_of_squares(DType dtype, const std::byte* data, std::size_t count, Target target) {
  return HOOKLINE_DISPATCH(target, sum_of_squares_of)(dtype, data, count);
}

}  // namespace kernel

Tensor squared_norm(const Tensor& tensor) {
  const Tensor flat = tensor.contiguous();
  const double sum = kernel::sum_of_squares(flat.dtype(), flat.bytes(), static_cast<std::size_t>(flat.numel()));
  return Tensor::full({1}, sum, tensor.dtype() == DType::f64 ? DType::f64 : DType::f32);
}

}  // namespace hookline
#endif
