// Binds Tensor, its factory functions, and conversions from arrays of other libraries.
#include <string>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>

#include "bindings.hpp"
#include "dtype_arg.hpp"
#include "gil_release.hpp"
#include "shape_arg.hpp"
#include "tensor_export.hpp"
#include "tensor_import.hpp"

namespace hookline::python {
namespace {

/// Supports reshape(2, 3) and reshape((2, 3)).
Tensor reshape(const Tensor& self, const nb::args& shape) {
  const bool spread = shape.size() != 1 || PyIndex_Check(shape[0].ptr());
  return self.reshape(Dims(std::span<const std::int64_t>(
      nb::cast<std::vector<std::int64_t>>(spread ? nb::object(shape) : nb::object(shape[0])))));
}

/// Applies one item of an index to dimension `dim`; an integer removes the dimension. Returns the next dimension.
std::size_t apply_index(Tensor& view, std::size_t dim, nb::handle index) {
  if (dim >= view.dim()) throw nb::index_error(("too many indices for a tensor of " + to_string(view)).c_str());
  const std::int64_t extent = view.shape()[dim];
  if (PySlice_Check(index.ptr())) {
    Py_ssize_t start, stop, step;
    if (PySlice_Unpack(index.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
    PySlice_AdjustIndices(static_cast<Py_ssize_t>(extent), &start, &stop, step);
    view = view.slice(dim, start, stop, step);
    return dim + 1;
  }
  const Py_ssize_t position = PyNumber_AsSsize_t(index.ptr(), PyExc_IndexError);
  if (position == -1 && PyErr_Occurred()) throw nb::python_error();
  const std::int64_t at = position < 0 ? position + extent : position;
  if (at < 0 || at >= extent) {
    throw nb::index_error(
        ("index " + std::to_string(position) + " is out of range for a tensor of " + to_string(view)).c_str());
  }
  view = view.slice(dim, at, at + 1);
  Dims rest;
  for (std::size_t i = 0; i < view.dim(); ++i) {
    if (i != dim) rest.push_back(view.shape()[i]);
  }
  view = view.reshape(rest);
  return dim;
}

Tensor get_item(const Tensor& self, nb::handle index) {
  const nb::tuple indices = nb::isinstance<nb::tuple>(index) ? nb::borrow<nb::tuple>(index) : nb::make_tuple(index);
  std::size_t num_indices = 0;
  for (const nb::handle index_item : indices) num_indices += index_item.ptr() != Py_Ellipsis;
  Tensor view = self;
  std::size_t dim = 0;
  for (const nb::handle index_item : indices) {
    if (index_item.ptr() == Py_Ellipsis) dim += self.dim() - std::min(self.dim(), num_indices);
    else dim = apply_index(view, dim, index_item);
  }
  return view;
}

nb::object item(const Tensor& self) {
  switch (self.dtype()) {
    case DType::boolean: return nb::bool_(self.item<bool>());
    case DType::f64:
    case DType::f32:
    case DType::f16:
    case DType::bf16: return nb::float_(self.item<double>());
    default: return nb::int_(self.item<std::int64_t>());
  }
}

nb::object as_array(nb::handle self, nb::handle dtype, std::optional<bool> copy) {
  nb::object array = to_numpy(*nb::inst_ptr<Tensor>(self));
  if (!dtype.is_none() && !array.attr("dtype").equal(dtype)) {
    if (copy && !*copy)
      throw nb::value_error("Tensor.__array__: converting to another dtype requires a copy, but copy=False");
    return array.attr("astype")(dtype);
  }
  return copy.value_or(false) ? array.attr("copy")() : array;
}

Tensor from_dlpack(const TensorArg& source) {
  const nb::handle object = source.object;
  if (!PyCapsule_CheckExact(object.ptr()) && !nb::hasattr(object, "__dlpack__")) {
    throw nb::type_error(
        "from_dlpack: expected a DLPack capsule or an object with a __dlpack__ method. Use asarray for buffers.");
  }
  return source.tensor();
}

PyType_Slot slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)}, {0, nullptr}};

void bind_class(nb::module_& m) {
  const nb::call_guard<GilRelease> releases_gil;
  nb::class_<Tensor>(m, "Tensor", nb::type_slots(slots), nb::is_weak_referenceable(),
                     "A strided view of CPU memory that keeps the owner of the memory alive.")
      .def_prop_ro(
          "shape", [](const Tensor& t) { return tuple_of(t.shape()); }, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro(
          "strides", [](const Tensor& t) { return tuple_of(t.strides()); },
          nb::sig("def strides(self) -> tuple[int, ...]"), "The strides in elements.")
      .def_prop_ro(
          "dtype", [](const Tensor& t) { return std::string(name(t.dtype())); },
          "The dtype's name in NumPy and torch, such as \"float32\" or \"bfloat16\".")
      .def_prop_ro("ndim", &Tensor::dim)
      .def_prop_ro("size", &Tensor::numel, "The number of elements.")
      .def_prop_ro("itemsize", &Tensor::itemsize)
      .def_prop_ro("nbytes", &Tensor::nbytes)
      .def_prop_ro("storage_offset", &Tensor::storage_offset, "The offset in elements.")
      .def_prop_ro("read_only", &Tensor::read_only)
      .def("numel", &Tensor::numel, "Returns the number of elements.")
      .def(
          "data_ptr", [](const Tensor& t) { return reinterpret_cast<std::uintptr_t>(t.bytes()); },
          "Returns the address of the first element.")
      .def("is_contiguous", &Tensor::is_contiguous, "True if the elements are in row-major order without gaps.")
      .def("reshape", &reshape, nb::sig("def reshape(self, *shape: int | collections.abc.Sequence[int]) -> Tensor"),
           "Returns a view with another shape; one extent may be -1. Raises InvalidArgument if this requires a copy.")
      .def("flatten", &Tensor::flatten,
           "Returns a one-dimensional view. Raises InvalidArgument if this requires a copy.")
      .def("as_read_only", &Tensor::as_read_only, "Returns a read-only view.")
      .def("contiguous", &Tensor::contiguous, releases_gil, "Returns this tensor if it is contiguous, else a copy.")
      .def("clone", &Tensor::clone, releases_gil, "Returns a contiguous copy.")
      .def(
          "copy_from",
          [](const Tensor& t, const TensorArg& source) {
            const Tensor from = source.tensor();
            const GilRelease released;
            t.copy_from(from);
          },
          nb::arg("source"), "Copies from an array or tensor of the same shape and dtype.")
      .def("fill", &Tensor::fill, nb::arg("value"), releases_gil,
           "Sets every element. The value is a float, so integers beyond 2**53 are rounded.")
      .def("item", &item, nb::sig("def item(self) -> float | int | bool"),
           "Returns the element of a tensor with exactly one element.")
      .def("__array__", &as_array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                   "numpy.typing.NDArray[typing.Any]"))
      .def("__dlpack__", &to_capsule, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: typing.Any = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> typing.Any"))
      .def("__dlpack_device__", [](const Tensor&) { return std::pair(1, 0); })
      .def("__getitem__", &get_item, nb::arg("index"), nb::sig("def __getitem__(self, index: typing.Any) -> Tensor"),
           "Returns a view, by integers, slices with a positive step, and an ellipsis.")
      .def("__len__",
           [](const Tensor& t) {
             if (t.dim() == 0) throw nb::type_error("len() of a zero-dimensional tensor");
             return t.shape()[0];
           })
      // Last, because in the stub its name hides the module `numpy` in subsequent signatures.
      .def("numpy", &to_numpy, nb::sig("def numpy(self) -> numpy.typing.NDArray[typing.Any]"),
           "Returns a NumPy array of the same memory. bfloat16 becomes the ml_dtypes type if installed, else uint16.")
      .def("__repr__", [](const Tensor& t) { return "hookline.Tensor(" + to_string(t) + ")"; });
}

}  // namespace

void bind_tensor(nb::module_& m) {
  bind_class(m);
  m.def(
      "empty", [](const Shape& shape, const DTypeArg& dtype) { return Tensor::empty(dims_of(shape), dtype.value()); },
      nb::arg("shape"), nb::arg("dtype") = "float32", "Returns a new uninitialized tensor, aligned to 64 bytes.");
  m.def(
      "zeros", [](const Shape& shape, const DTypeArg& dtype) { return Tensor::zeros(dims_of(shape), dtype.value()); },
      nb::arg("shape"), nb::arg("dtype") = "float32", "Returns a new tensor of zeros.");
  m.def(
      "full",
      [](const Shape& shape, double value, const DTypeArg& dtype) {
        return Tensor::full(dims_of(shape), value, dtype.value());
      },
      nb::arg("shape"), nb::arg("fill_value"), nb::arg("dtype") = "float32",
      "Returns a new tensor filled with a value. The value is a float, so integers beyond 2**53 are rounded.");
  m.def(
      "asarray", [](const TensorArg& source) { return source.tensor(); }, nb::arg("source"),
      "Returns a view, without a copy, of a NumPy array, a torch tensor, a DLPack capsule, or an object that exports "
      "DLPack or a buffer. A torch tensor that requires grad is treated as detached.");
  m.def("from_dlpack", &from_dlpack, nb::arg("source"),
        "Returns a view of a DLPack capsule or an object with a __dlpack__ method.");
}

}  // namespace hookline::python
