// DLPack import and export. Every field of a foreign tensor is validated before use.
#include <array>
#include <memory>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/tensor.hpp>

#include "core/dlpack_abi.hpp"

namespace hookline {
namespace {

std::string device_name(DLDevice device) {
  constexpr std::array<const char*, 18> kNames = {
      "",    "cpu",  "cuda",      "cuda-host", "opencl",       "",       "",       "vulkan",  "metal",
      "vpi", "rocm", "rocm-host", "ext-dev",   "cuda-managed", "oneapi", "webgpu", "hexagon", "maia"};
  const auto type = static_cast<std::size_t>(device.type);
  const std::string name = device.type > 0 && type < kNames.size() ? kNames[type] : "";
  return fmt::format("{}:{}", name.empty() ? fmt::format("DLPack device type {}", device.type) : name, device.id);
}

DLDataType to_dlpack_dtype(DType dtype) {
  const auto bits = static_cast<std::uint8_t>(8 * size_of(dtype));
  switch (dtype) {
    case DType::f64:
    case DType::f32:
    case DType::f16: return {core::kDLFloat, bits, 1};
    case DType::bf16: return {core::kDLBfloat, bits, 1};
    case DType::u8: return {core::kDLUInt, bits, 1};
    case DType::boolean: return {core::kDLBool, bits, 1};
    case DType::i8:
    case DType::i16:
    case DType::i32:
    case DType::i64: break;
  }
  return {core::kDLInt, bits, 1};
}

DType from_dlpack_dtype(DLDataType type) {
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i8, DType::u8, DType::i16,
                            DType::i32, DType::i64, DType::boolean}) {
    const DLDataType candidate = to_dlpack_dtype(dtype);
    if (candidate.code == type.code && candidate.bits == type.bits && candidate.lanes == type.lanes) return dtype;
  }
  throw Unsupported(fmt::format(
      "from_dlpack: unsupported element type (code {}, {} bits, {} lanes): expected float64, float32, float16, "
      "bfloat16, int8 to int64, uint8 or bool",
      type.code, type.bits, type.lanes));
}

Tensor make_view(const DLTensor& t, bool read_only, std::shared_ptr<void> owner) {
  if (t.device.type != core::kDLCPU) {
    throw Unsupported(
        fmt::format("from_dlpack: the tensor is on {}: Hookline works on CPU memory. Copy it to the CPU first.",
                    device_name(t.device)));
  }
  if (t.ndim < 0 || static_cast<std::size_t>(t.ndim) > kMaxDims) {
    throw InvalidArgument(fmt::format("from_dlpack: expected 0 to {} dimensions, got {}", kMaxDims, t.ndim));
  }
  const auto ndim = static_cast<std::size_t>(t.ndim);
  if (ndim > 0 && !t.shape) {
    throw InvalidArgument(fmt::format("from_dlpack: the shape is null: expected {} extents", ndim));
  }
  const DType dtype = from_dlpack_dtype(t.dtype);
  const Dims shape(std::span<const std::int64_t>(t.shape, ndim));
  // An offset from null is undefined. A null tensor stays null; wrap() rejects it if it has elements.
  auto* const data = t.data ? static_cast<std::byte*>(t.data) + t.byte_offset : nullptr;
  Tensor::WrapOptions options{.owner = std::move(owner), .read_only = read_only};
  if (t.strides) options.strides = Dims(std::span<const std::int64_t>(t.strides, ndim));
  return Tensor::wrap(data, shape, dtype, options);
}

// The caller owns the tensor until the view is constructed, so the deleter is armed last.
template <class Managed>
Tensor import_managed(Managed* managed, bool read_only) {
  struct Owner {
    Managed* managed = nullptr;
    ~Owner() {
      if (managed && managed->deleter) managed->deleter(managed);
    }
  };
  const auto owner = std::make_shared<Owner>();
  Tensor result = make_view(managed->dl_tensor, read_only, owner);
  owner->managed = managed;
  return result;
}

template <class Managed>
struct Exported {
  Managed managed;
  Tensor tensor;
  Dims shape;
  Dims strides;
};

template <class Managed>
Managed* export_tensor(const Tensor& tensor) {
  auto exported = std::make_unique<Exported<Managed>>(Exported<Managed>{{}, tensor, tensor.shape(), tensor.strides()});
  Managed& managed = exported->managed;
  managed.dl_tensor = {
      .data = const_cast<std::byte*>(tensor.bytes()),
      .device = {core::kDLCPU, 0},
      .ndim = static_cast<std::int32_t>(tensor.dim()),
      .dtype = to_dlpack_dtype(tensor.dtype()),
      .shape = exported->shape.begin(),
      .strides = exported->strides.begin(),
      .byte_offset = 0,
  };
  managed.manager_ctx = exported.get();
  managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->manager_ctx); };
  return &exported.release()->managed;
}

}  // namespace

Tensor Tensor::from_dlpack(DLManagedTensor* managed) {
  if (!managed) throw InvalidArgument("from_dlpack: the tensor is null");
  return import_managed(managed, false);
}

Tensor Tensor::from_dlpack(DLManagedTensorVersioned* managed) {
  if (!managed) throw InvalidArgument("from_dlpack: the tensor is null");
  if (managed->version.major != core::kDLPackVersion.major) {
    throw Unsupported(fmt::format("from_dlpack: unsupported DLPack version {}.{}: expected version {}",
                                  managed->version.major, managed->version.minor, core::kDLPackVersion.major));
  }
  return import_managed(managed, (managed->flags & core::kDLReadOnly) != 0);
}

DLManagedTensor* Tensor::to_dlpack_unversioned() const {
  if (read_only_) {
    throw InvalidArgument(fmt::format(
        "to_dlpack_unversioned: {} is read-only, and unversioned DLPack has no read-only flag", to_string(*this)));
  }
  return export_tensor<DLManagedTensor>(*this);
}

DLManagedTensorVersioned* Tensor::to_dlpack() const {
  DLManagedTensorVersioned* const managed = export_tensor<DLManagedTensorVersioned>(*this);
  managed->version = core::kDLPackVersion;
  managed->flags = read_only_ ? core::kDLReadOnly : 0;
  return managed;
}

}  // namespace hookline
