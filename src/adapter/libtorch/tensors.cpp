// Views of torch tensors as Hookline tensors, and the reverse.
#include "adapter/libtorch/tensors.hpp"

#include <optional>
#include <utility>

#include <ATen/Functions.h>

#include <hookline/core/error.hpp>

#include "adapter/libtorch/backend.hpp"

namespace hookline::libtorch {
namespace {

struct ElementType {
  DType dtype;
  bool is_complex = false;  ///< complex: two values for each element
};

constexpr std::pair<at::ScalarType, DType> kTypes[] = {
    {at::kDouble, DType::f64}, {at::kFloat, DType::f32},   {at::kHalf, DType::f16},  {at::kBFloat16, DType::bf16},
    {at::kChar, DType::i8},    {at::kByte, DType::u8},     {at::kShort, DType::i16}, {at::kInt, DType::i32},
    {at::kLong, DType::i64},   {at::kBool, DType::boolean}};

std::optional<ElementType> element_type_of(at::ScalarType type, TensorUse use) {
  for (const auto& [theirs, ours] : kTypes) {
    if (theirs == type) return ElementType{ours};
  }
  if (c10::isComplexType(type)) return ElementType{element_type_of(c10::toRealValueType(type), use)->dtype, true};
  if (use == TensorUse::reduce || at::isQIntType(type)) return std::nullopt;
  switch (c10::elementSize(type)) {
    case 1: return ElementType{DType::u8};
    case 2: return ElementType{DType::i16};
    case 4: return ElementType{DType::i32};
    case 8: return ElementType{DType::i64};
    default: return std::nullopt;
  }
}

at::ScalarType scalar_type_of(DType dtype) {
  for (const auto& [theirs, ours] : kTypes) {
    if (ours == dtype) return theirs;
  }
  return at::kBool;
}

void check(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) throw InvalidArgument(std::string(operation) + ": a tensor is undefined");
  if (!tensor.device().is_cpu()) {
    throw Unsupported(std::string(operation) + ": a tensor is on " + tensor.device().str() +
                      ", but the hookline backend takes tensors on the CPU. Use " + kPerDeviceBackendAdvice);
  }
  if (tensor.layout() != at::kStrided) {
    throw Unsupported(std::string(operation) + ": unsupported layout: expected a dense tensor, got " +
                      c10::str(tensor.layout()) + ". Pass tensor.to_dense().");
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    throw InvalidArgument(std::string(operation) +
                          ": a tensor is a conjugate or negative view, whose memory holds different values. Pass "
                          "tensor.resolve_conj().resolve_neg().");
  }
}

}  // namespace

Tensor view_of(const at::Tensor& tensor, const char* operation, TensorUse use, bool keep_alive) {
  return view_of(tensor, operation, use, keep_alive ? std::make_shared<at::Tensor>(tensor) : std::shared_ptr<void>());
}

Tensor view_of(const at::Tensor& tensor, const char* operation, TensorUse use, std::shared_ptr<void> owner) {
  check(tensor, operation);
  const std::optional<ElementType> kind = element_type_of(tensor.scalar_type(), use);
  if (!kind) {
    throw Unsupported(std::string(operation) + ": elements of type " + c10::toString(tensor.scalar_type()) +
                      " cannot be reduced: expected float64, float32, float16, bfloat16, int8 to int64, uint8, bool or "
                      "complex");
  }
  Dims shape(std::span(tensor.sizes().data(), tensor.sizes().size()));
  Tensor::WrapOptions options;
  if (!tensor.is_contiguous()) options.strides = Dims(std::span(tensor.strides().data(), tensor.strides().size()));
  if (kind->is_complex) {
    shape.push_back(2);
    if (options.strides) {
      for (std::int64_t& stride : *options.strides) stride *= 2;
      options.strides->push_back(1);
    }
  }
  options.owner = std::move(owner);
  return Tensor::wrap(tensor.mutable_data_ptr(), shape, kind->dtype, options);
}

at::Tensor tensor_of(const Tensor& tensor) {
  const at::IntArrayRef sizes(tensor.shape().begin(), tensor.shape().size());
  const at::IntArrayRef strides(tensor.strides().begin(), tensor.strides().size());
  // The deleter owns the memory.
  return at::from_blob(
      const_cast<std::byte*>(tensor.bytes()), sizes, strides, [kept = tensor](void*) {},
      at::TensorOptions().dtype(scalar_type_of(tensor.dtype())));
}

}  // namespace hookline::libtorch
