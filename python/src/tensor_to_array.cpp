// Converts a tensor to the Python object that owns its memory, or to a new view of that memory.
#include "tensor_to_array.hpp"

#include <cstdint>

#include <hookline/core/error.hpp>

#include "py_object.hpp"
#include "tensor_export.hpp"
#include "tensor_import.hpp"

namespace hookline::python {
namespace {

bool same_view(const Tensor& a, const Tensor& b) {
  if (a.bytes() != b.bytes() || a.dtype() != b.dtype() || a.dim() != b.dim()) return false;
  for (std::size_t i = 0; i < a.dim(); ++i) {
    if (a.shape()[i] != b.shape()[i]) return false;
    if (a.shape()[i] > 1 && a.strides()[i] != b.strides()[i]) return false;
  }
  return true;
}

/// Returns torch.Tensor if torch is imported, else null. Cached.
nb::handle torch_tensor_type() {
  static nb::handle type;  // never released: it lives as long as the interpreter
  if (type.is_valid()) return type;
  const nb::handle torch = PyDict_GetItemString(PyImport_GetModuleDict(), "torch");
  if (torch.is_valid()) type = nb::getattr(torch, "Tensor", nb::object()).release();
  return type;
}

/// True if a torch tensor has the same elements as `tensor`. For dtypes that this library lacks, such as complex
/// numbers, `tensor` has pairs or integers; then only the memory ranges are compared.
bool aliases(nb::handle torch_tensor, const Tensor& tensor) {
  try {
    return same_view(to_tensor(torch_tensor), tensor);
  } catch (const Unsupported&) {
    const auto address = nb::cast<std::uintptr_t>(torch_tensor.attr("data_ptr")());
    return address == reinterpret_cast<std::uintptr_t>(tensor.bytes()) &&
           nb::cast<std::size_t>(torch_tensor.attr("nbytes")) == tensor.nbytes();
  }
}

}  // namespace

bool is_torch_tensor(nb::handle object) {
  const nb::handle type = torch_tensor_type();
  return type.is_valid() && PyObject_IsInstance(object.ptr(), type.ptr()) == 1;
}

nb::object array_of(const Tensor& tensor) {
  const nb::handle owner = PyRef::object_of(tensor.owner());
  if (!owner.is_valid()) return to_numpy(tensor);
  if (PyMemoryView_Check(owner.ptr())) {
    const nb::handle exporter = PyMemoryView_GET_BUFFER(owner.ptr())->obj;
    if (exporter.is_valid() && same_view(to_tensor(owner), tensor)) return nb::borrow(exporter);
    return to_numpy(tensor);
  }
  if (!is_torch_tensor(owner)) return to_numpy(tensor);
  if (aliases(owner, tensor)) return nb::borrow(owner);
  return nb::module_::import_("torch").attr("from_dlpack")(tensor);
}

nb::object arrays_of(const std::vector<Tensor>& tensors) {
  nb::object list = nb::steal(PyList_New(static_cast<Py_ssize_t>(tensors.size())));
  if (!list.is_valid()) throw nb::python_error();
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    PyList_SET_ITEM(list.ptr(), static_cast<Py_ssize_t>(i), array_of(tensors[i]).release().ptr());
  }
  return list;
}

}  // namespace hookline::python
