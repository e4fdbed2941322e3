// Tensor imports, fastest first: hookline.Tensor, buffers, DLPack's C exchange API, capsules, __dlpack__.
#include "tensor_import.hpp"

#include <memory>
#include <string>
#include <string_view>

#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>

#include "core/dlpack_abi.hpp"
#include "py_error.hpp"
#include "py_object.hpp"

namespace hookline::python {
namespace {

/// The table of functions behind type(tensor).__dlpack_c_exchange_api__ (DLPack 1.2 and later).
struct ExchangeApi {
  DLPackVersion version;
  const ExchangeApi* previous;
  int (*allocate)(DLTensor*, DLManagedTensorVersioned**, void*, void (*)(void*, const char*, const char*));
  int (*export_managed)(void* object, DLManagedTensorVersioned** out);
  int (*import_managed)(DLManagedTensorVersioned*, void** out);
  int (*export_borrowed)(void* object, DLTensor* out);
  int (*current_stream)(std::int32_t, std::int32_t, void** out);
};

/// Interned and never released: looking up an attribute by a C string would create a new object each time.
nb::handle interned(const char* text) { return PyUnicode_InternFromString(text); }

nb::object find_attribute(nb::handle object, nb::handle name) {
  nb::object found = nb::steal(PyObject_GetAttr(object.ptr(), name.ptr()));
  if (!found.is_valid()) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) throw nb::python_error();
    PyErr_Clear();
  }
  return found;
}

/// Validates a foreign tensor and returns a view whose owner is a Python object, which PyRef::object_of() returns.
Tensor view_of(const DLTensor& foreign, std::uint64_t flags, const PyRef& owner) {
  DLManagedTensorVersioned managed{core::kDLPackVersion, nullptr, nullptr, flags, foreign};
  const Tensor checked = Tensor::from_dlpack(&managed);
  return Tensor::wrap(const_cast<std::byte*>(checked.bytes()), checked.shape(), checked.dtype(),
                      {.strides = checked.strides(), .owner = owner.owner(), .read_only = checked.read_only()});
}

template <class Managed>
void run_deleter(PyObject* capsule) {
  auto* const managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, nullptr));
  if (managed && managed->deleter) managed->deleter(managed);
  PyErr_Clear();
}

/// Takes ownership of a managed tensor. The deleter is set last, so that the caller keeps ownership on an exception. It
/// runs with the GIL, on any thread.
template <class Managed>
Tensor adopt(Managed* managed, std::uint64_t flags) {
  nb::object owner = nb::steal(PyCapsule_New(managed, nullptr, nullptr));
  if (!owner.is_valid()) throw nb::python_error();
  Tensor result = view_of(managed->dl_tensor, flags, PyRef(owner));
  PyCapsule_SetDestructor(owner.ptr(), &run_deleter<Managed>);
  return result;
}

Tensor from_capsule(nb::handle capsule) {
  const char* const raw_name = PyCapsule_GetName(capsule.ptr());
  const std::string_view name = raw_name ? raw_name : "";
  if (name == "dltensor_versioned") {
    auto* const managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), raw_name));
    if (managed->version.major != core::kDLPackVersion.major) return Tensor::from_dlpack(managed);  // throws
    Tensor result = adopt(managed, managed->flags);
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    return result;
  }
  if (name == "dltensor") {
    Tensor result = adopt(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), raw_name)), 0);
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
    return result;
  }
  if (name.starts_with("used_dltensor")) {
    throw InvalidArgument("this DLPack capsule is already consumed. Request a new one from its producer.");
  }
  throw InvalidArgument("a capsule named '" + std::string(name) +
                        "' is not a DLPack tensor: expected the name dltensor or dltensor_versioned");
}

/// torch represents lazy negation as a bit on the tensor, which DLPack cannot express.
void refuse_negative_view(nb::handle object) {
  static const nb::handle is_neg = interned("is_neg");
  const nb::object method = find_attribute(object, is_neg);
  if (method.is_valid() && nb::cast<bool>(method())) {
    throw InvalidArgument("a torch tensor with its negative bit set is not plain memory. Use its resolve_neg().");
  }
}

/// Throws an error that names the unsupported device or layout, which torch's own message does not.
[[noreturn]] void throw_export_refused(nb::handle object) {
  const nb::python_error error;
  const auto cause = error_from_python(PyRef(nb::borrow(error.value())));
  const auto text_of = [&](const char* attribute) -> std::string {
    return nb::str(nb::getattr(object, attribute, nb::str())).c_str();
  };
  const std::string device = text_of("device");
  if (!device.empty() && !device.starts_with("cpu")) {
    throw Unsupported(
        "tensor on device " + device + ": Hookline supports CPU memory. Copy the tensor to the CPU first.", cause);
  }
  throw Unsupported("tensor with layout " + text_of("layout") +
                        ": its library does not export the memory. Convert it to a dense CPU tensor first.",
                    cause);
}

Tensor from_exchange_api(const ExchangeApi& api, nb::handle object) {
  refuse_negative_view(object);
  if (api.export_borrowed) {
    DLTensor borrowed;
    if (api.export_borrowed(object.ptr(), &borrowed) != 0) throw_export_refused(object);
    return view_of(borrowed, 0, PyRef(nb::borrow(object)));
  }
  DLManagedTensorVersioned* managed = nullptr;
  if (api.export_managed(object.ptr(), &managed) != 0) throw_export_refused(object);
  try {
    return adopt(managed, managed->flags);
  } catch (...) {
    if (managed->deleter) managed->deleter(managed);
    throw;
  }
}

const ExchangeApi* exchange_api(nb::handle object) {
  static const nb::handle name = interned("__dlpack_c_exchange_api__");
  const nb::object capsule = find_attribute(object.type(), name);
  if (!capsule.is_valid() || !PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
  const auto* api = static_cast<const ExchangeApi*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  while (api && api->version.major != core::kDLPackVersion.major) api = api->previous;
  return api;
}

DType dtype_of_format(const char* format, Py_ssize_t itemsize) {
  const std::string_view text = format ? format : "B";
  std::string_view code = text;
  if (!code.empty() && (code[0] == '@' || code[0] == '=' || code[0] == '<')) code.remove_prefix(1);
  if (code.size() == 1) {
    switch (code[0]) {
      case '?': return DType::boolean;
      case 'e': return DType::f16;
      case 'f': return DType::f32;
      case 'd': return DType::f64;
      case 'b': return DType::i8;
      case 'B': return DType::u8;
      case 'h': return DType::i16;
      case 'i': return DType::i32;
      case 'l': return itemsize == 8 ? DType::i64 : DType::i32;
      case 'q': return DType::i64;
      default: break;
    }
  }
  throw Unsupported("array with element format '" + std::string(text) +
                    "' (as in Python's struct module): expected float64, float32, float16, bfloat16, int8 to int64, "
                    "uint8 or bool in native byte order");
}

Tensor from_buffer(const nb::object& memory_view) {
  const Py_buffer& buffer = *PyMemoryView_GET_BUFFER(memory_view.ptr());
  const DType dtype = dtype_of_format(buffer.format, buffer.itemsize);
  const auto ndim = static_cast<std::size_t>(buffer.ndim);
  Dims shape(ndim, 0);
  Dims strides(ndim, 0);
  for (std::size_t i = 0; i < ndim; ++i) {
    shape[i] = buffer.shape[i];
    strides[i] = buffer.strides[i] / buffer.itemsize;
    const bool matters = shape[i] > 1;
    if ((matters && buffer.strides[i] % buffer.itemsize != 0) || (buffer.suboffsets && buffer.suboffsets[i] >= 0)) {
      throw InvalidArgument("the strides of this array are not multiples of the element size. Copy it first.");
    }
  }
  return Tensor::wrap(buffer.buf, shape, dtype,
                      {.strides = strides, .owner = PyRef(memory_view).owner(), .read_only = buffer.readonly != 0});
}

/// NumPy has no format character for ml_dtypes bfloat16, so it is exported as int16.
bool is_numpy_bfloat16(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", nb::none());
  return nb::isinstance<nb::str>(name) && std::string_view(nb::cast<nb::str>(name).c_str()) == "bfloat16";
}

Tensor from_buffer_exporter(nb::handle object) {
  nb::object view = nb::steal(PyMemoryView_FromObject(object.ptr()));
  if (view.is_valid()) return from_buffer(view);
  nb::python_error error;
  if (!is_numpy_bfloat16(object)) throw error;
  view = nb::steal(PyMemoryView_FromObject(object.attr("view")("int16").ptr()));
  if (!view.is_valid()) throw nb::python_error();
  return from_buffer(view).view_as(DType::bf16);
}

Tensor from_dlpack_method(nb::handle object) {
  if (nb::hasattr(object, "__dlpack_device__")) {
    const auto device = object.attr("__dlpack_device__")();
    const auto type = nb::cast<std::int32_t>(nb::int_(device[0]));
    if (type != core::kDLCPU) {
      DLTensor foreign{};
      foreign.device = {type, nb::cast<std::int32_t>(nb::int_(device[1]))};
      return view_of(foreign, 0, {});  // throws, naming the device, before the exporter has to synchronize it
    }
  }
  refuse_negative_view(object);
  const nb::object method = object.attr("__dlpack__");
  const auto [major, minor] = core::kDLPackVersion;
  nb::object capsule;
  try {
    capsule = method(nb::arg("max_version") = nb::make_tuple(major, minor));
  } catch (const nb::python_error& e) {
    if (!e.matches(PyExc_TypeError)) throw;
    capsule = method();  // an exporter that only supports the unversioned form
  }
  if (!PyCapsule_CheckExact(capsule.ptr())) throw nb::type_error("__dlpack__ did not return a capsule");
  return from_capsule(capsule);
}

}  // namespace

Tensor to_tensor(nb::handle object) {
  if (nb::isinstance<Tensor>(object)) return *nb::inst_ptr<Tensor>(object);
  if (PyObject_CheckBuffer(object.ptr())) return from_buffer_exporter(object);
  if (const ExchangeApi* const api = exchange_api(object)) return from_exchange_api(*api, object);
  if (PyCapsule_CheckExact(object.ptr())) return from_capsule(object);
  if (nb::hasattr(object, "__dlpack__")) return from_dlpack_method(object);
  const std::string type = nb::type_name(object.type()).c_str();
  throw nb::type_error(("expected a tensor or an array that exports DLPack or a buffer, got " + type).c_str());
}

}  // namespace hookline::python
