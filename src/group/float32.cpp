// Conversion of floating-point tensors to float32 and back.
#include "group/float32.hpp"

#include <algorithm>

#include <hookline/core/error.hpp>

#include "kernel/cast.hpp"

namespace hookline::group {

Tensor as_float32(const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.numel());
  if (tensor.dtype() == DType::f32) return tensor.contiguous().flatten();
  Tensor values = Tensor::empty({tensor.numel()});
  const Tensor source = tensor.contiguous();
  switch (tensor.dtype()) {
    case DType::f16:
    case DType::bf16: kernel::widen(tensor.dtype(), source.bytes(), values.data<float>(), count); break;
    case DType::f64:
      std::transform(source.data<const double>(), source.data<const double>() + count, values.data<float>(),
                     [](double x) { return static_cast<float>(x); });
      break;
    default: throw InvalidArgument("expected a floating-point tensor, got " + to_string(tensor));
  }
  return values;
}

void from_float32(const Tensor& values, const Tensor& tensor) {
  if (values.bytes() == tensor.bytes()) return;
  const auto count = static_cast<std::size_t>(values.numel());
  Tensor result = values;
  if (tensor.dtype() != DType::f32) result = Tensor::empty({values.numel()}, tensor.dtype());
  if (tensor.dtype() == DType::f64) {
    std::copy_n(values.data<const float>(), count, result.data<double>());
  } else if (tensor.dtype() != DType::f32) {
    kernel::narrow(tensor.dtype(), values.data<const float>(), result.mutable_bytes(), count);
  }
  tensor.copy_from(result.reshape(tensor.shape()));
}

}  // namespace hookline::group
