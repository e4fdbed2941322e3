// Tensor exports. The destructor of a capsule frees an unconsumed tensor; buffers and arrays keep the memory alive.
#include "tensor_export.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>

#include <hookline/core/error.hpp>

#include "core/dlpack_abi.hpp"
#include "py_error.hpp"

namespace hookline::python {
namespace {

constexpr std::uint64_t kDLIsCopied = 2;

template <class Managed>
nb::object new_capsule(Managed* managed, const char* name) {
  const auto free_unconsumed = [](PyObject* capsule) {
    const char* const current = PyCapsule_GetName(capsule);
    if (!current || std::string_view(current).starts_with("used_")) return;
    auto* const left = static_cast<Managed*>(PyCapsule_GetPointer(capsule, current));
    left->deleter(left);
  };
  nb::object capsule = nb::steal(PyCapsule_New(managed, name, free_unconsumed));
  if (!capsule.is_valid()) {
    managed->deleter(managed);
    throw nb::python_error();
  }
  return capsule;
}

const char* format_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return "d";
    case DType::f32: return "f";
    case DType::f16: return "e";
    case DType::i8: return "b";
    case DType::u8: return "B";
    case DType::i16: return "h";
    case DType::i32: return "i";
    case DType::i64: return "q";
    case DType::boolean: return "?";
    case DType::bf16: break;
  }
  return nullptr;
}

/// The memory that a Py_buffer points to. The buffer refers to a capsule with it instead of the Python object: torch
/// never releases arrays that are alive at finalization, and nanobind would report those objects as leaked.
struct ExportedBuffer {
  explicit ExportedBuffer(const Tensor& source) : tensor(source) {}

  const Tensor tensor;
  Py_ssize_t shape[kMaxDims];
  Py_ssize_t strides[kMaxDims];
};
constexpr const char* kExportedBuffer = "hookline.Buffer";

void free_exported_buffer(PyObject* capsule) {
  delete static_cast<ExportedBuffer*>(PyCapsule_GetPointer(capsule, kExportedBuffer));
}

int refuse_buffer(Py_buffer* view, const char* reason) {
  view->obj = nullptr;
  PyErr_SetString(PyExc_BufferError, reason);
  return -1;
}

alignas(64) std::byte empty_storage;  // the address for buffers of tensors without memory

}  // namespace

nb::object to_capsule(const Tensor& tensor, nb::handle stream,
                      std::optional<std::pair<std::int64_t, std::int64_t>> max_version,
                      std::optional<std::pair<std::int64_t, std::int64_t>> dl_device, std::optional<bool> copy) {
  if (!stream.is_none()) throw InvalidArgument("Tensor.__dlpack__: stream: expected None for CPU memory");
  if (dl_device && dl_device->first != core::kDLCPU) {
    throw Unsupported("Tensor.__dlpack__: cannot export to DLPack device type " + std::to_string(dl_device->first) +
                      ": hookline tensors are on the CPU");
  }
  const bool copied = copy.value_or(false);
  const Tensor exported = copied ? tensor.clone() : tensor;
  // DLPack allows negative strides, but torch 2.13 aborts the process on them.
  if (std::any_of(exported.strides().begin(), exported.strides().end(), [](std::int64_t s) { return s < 0; })) {
    throw InvalidArgument("Tensor.__dlpack__: " + to_string(exported) +
                          " has negative strides, which not all libraries support. Use clone(), copy=True or numpy().");
  }
  if (!max_version || max_version->first < 1) return new_capsule(exported.to_dlpack_unversioned(), "dltensor");
  DLManagedTensorVersioned* const managed = exported.to_dlpack();
  if (copied) managed->flags |= kDLIsCopied;
  return new_capsule(managed, "dltensor_versioned");
}

nb::object to_numpy(const Tensor& tensor) {
  const nb::module_ numpy = nb::module_::import_("numpy");
  if (tensor.dtype() != DType::bf16) return numpy.attr("asarray")(tensor);
  const nb::object bits = numpy.attr("asarray")(tensor.view_as(DType::i16));
  try {
    return bits.attr("view")(nb::module_::import_("ml_dtypes").attr("bfloat16"));
  } catch (const nb::python_error& e) {
    if (!e.matches(PyExc_ImportError)) throw;
    return bits.attr("view")("uint16");
  }
}

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  if (!nb::inst_ready(self)) return refuse_buffer(view, "this tensor is not initialized");
  const Tensor& tensor = *nb::inst_ptr<Tensor>(self);
  const char* const format = format_of(tensor.dtype());
  if (!format) return refuse_buffer(view, "the buffer protocol does not support bfloat16. Use numpy() or DLPack.");
  if (tensor.read_only() && (flags & PyBUF_WRITABLE)) return refuse_buffer(view, "this tensor is read-only");
  if (!tensor.is_contiguous() && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
    return refuse_buffer(view, "this tensor is not contiguous");
  }
  const auto* const memory = tensor.bytes() ? tensor.bytes() : &empty_storage;
  auto exported = std::make_unique<ExportedBuffer>(tensor);
  const auto itemsize = static_cast<Py_ssize_t>(tensor.itemsize());
  for (std::size_t i = 0; i < tensor.dim(); ++i) {
    exported->shape[i] = tensor.shape()[i];
    exported->strides[i] = tensor.strides()[i] * itemsize;
  }
  *view = {};
  view->obj = PyCapsule_New(exported.get(), kExportedBuffer, &free_exported_buffer);
  if (!view->obj) return -1;
  ExportedBuffer& owned = *exported.release();
  view->buf = const_cast<std::byte*>(memory);
  view->len = static_cast<Py_ssize_t>(tensor.nbytes());
  view->itemsize = itemsize;
  view->readonly = tensor.read_only();
  view->ndim = static_cast<int>(tensor.dim());
  if (flags & PyBUF_FORMAT) view->format = const_cast<char*>(format);
  if (flags & PyBUF_ND) view->shape = owned.shape;
  if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) view->strides = owned.strides;
  return 0;
}

}  // namespace hookline::python
