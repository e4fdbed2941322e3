// Views in both directions.
#include "adapter/libtorch/tensors.hpp"

#include <optional>

#include <ATen/Functions.h>

#include <hookline/core/error.hpp>

namespace hookline::libtorch {
namespace {

struct Kind {
  DType dtype;
  bool pairs = false;  ///< two of them are one element
};

std::optional<Kind> kind_of(at::ScalarType type, Use use) {
  using T = at::ScalarType;
  switch (type) {
    case T::Double: return Kind{DType::f64};
    case T::Float: return Kind{DType::f32};
    case T::Half: return Kind{DType::f16};
    case T::BFloat16: return Kind{DType::bf16};
    case T::Char: return Kind{DType::i8};
    case T::Byte: return Kind{DType::u8};
    case T::Short: return Kind{DType::i16};
    case T::Int: return Kind{DType::i32};
    case T::Long: return Kind{DType::i64};
    case T::Bool: return Kind{DType::boolean};
    case T::ComplexHalf: return Kind{DType::f16, true};
    case T::ComplexFloat: return Kind{DType::f32, true};
    case T::ComplexDouble: return Kind{DType::f64, true};
    default: break;
  }
  if (use == Use::reduced || at::isQIntType(type)) return std::nullopt;
  switch (c10::elementSize(type)) {
    case 1: return Kind{DType::u8};
    case 2: return Kind{DType::i16};
    case 4: return Kind{DType::i32};
    case 8: return Kind{DType::i64};
    default: return std::nullopt;
  }
}

at::ScalarType scalar_type_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return at::kDouble;
    case DType::f32: return at::kFloat;
    case DType::f16: return at::kHalf;
    case DType::bf16: return at::kBFloat16;
    case DType::i8: return at::kChar;
    case DType::u8: return at::kByte;
    case DType::i16: return at::kShort;
    case DType::i32: return at::kInt;
    case DType::i64: return at::kLong;
    case DType::boolean: break;
  }
  return at::kBool;
}

void check(const at::Tensor& tensor, const char* operation) {
  if (!tensor.defined()) throw InvalidArgument(std::string(operation) + ": a tensor is undefined");
  if (!tensor.device().is_cpu()) {
    throw Unsupported(std::string(operation) + ": a tensor is on " + tensor.device().str() +
                      ", and the hookline backend takes tensors on the CPU. Use init_process_group(\"cpu:hookline,"
                      "cuda:nccl\"), which has a backend for each device, or pass tensor.cpu()");
  }
  if (tensor.layout() != at::kStrided) {
    throw Unsupported(std::string(operation) + ": a tensor has the layout " + c10::str(tensor.layout()) +
                      ", and the hookline backend takes dense ones here; pass tensor.to_dense()");
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    throw InvalidArgument(std::string(operation) +
                          ": a tensor is a conjugate or negative view, whose memory has other numbers; pass "
                          "tensor.resolve_conj().resolve_neg()");
  }
}

}  // namespace

Tensor view_of(const at::Tensor& tensor, const char* operation, Use use, bool owned) {
  check(tensor, operation);
  const std::optional<Kind> kind = kind_of(tensor.scalar_type(), use);
  if (!kind) {
    throw Unsupported(std::string(operation) + ": elements of type " + c10::toString(tensor.scalar_type()) +
                      " cannot be reduced; take one of float64, float32, float16, bfloat16, int8 to int64, uint8, bool "
                      "and complex");
  }
  Dims shape(std::span(tensor.sizes().data(), tensor.sizes().size()));
  Tensor::WrapOptions options;
  if (!tensor.is_contiguous()) options.strides = Dims(std::span(tensor.strides().data(), tensor.strides().size()));
  if (kind->pairs) {
    shape.push_back(2);
    if (options.strides) {
      for (std::int64_t& stride : *options.strides) stride *= 2;
      options.strides->push_back(1);
    }
  }
  if (owned) options.owner = std::make_shared<at::Tensor>(tensor);
  return Tensor::wrap(tensor.mutable_data_ptr(), shape, kind->dtype, options);
}

std::vector<Tensor> views_of(const std::vector<at::Tensor>& tensors, const char* operation, Use use, bool owned) {
  std::vector<Tensor> views;
  views.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) views.push_back(view_of(tensor, operation, use, owned));
  return views;
}

at::Tensor tensor_of(const Tensor& tensor) {
  const at::IntArrayRef sizes(tensor.shape().begin(), tensor.shape().size());
  const at::IntArrayRef strides(tensor.strides().begin(), tensor.strides().size());
  // The last view of the memory is dropped with the deleter.
  return at::from_blob(
      const_cast<std::byte*>(tensor.bytes()), sizes, strides, [kept = tensor](void*) {},
      at::TensorOptions().dtype(scalar_type_of(tensor.dtype())));
}

}  // namespace hookline::libtorch
