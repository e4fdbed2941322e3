// Binds GradBucket.
#include <optional>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "gc_slots.hpp"
#include "py_hook.hpp"
#include "shape_arg.hpp"
#include "tensor_import.hpp"
#include "tensor_to_array.hpp"

namespace hookline::python {
namespace {

int traverse(const PyGradBucket& self, visitproc visit, void* arg) {
  Py_VISIT(self.buffer.ptr());
  return 0;
}

void clear(PyGradBucket& self) { const nb::object released = std::exchange(self.buffer, nb::object()); }

void construct(PyGradBucket* self, const TensorArg& buffer, std::optional<std::vector<Shape>> sizes,
               std::optional<std::vector<TensorArg>> parameters, std::size_t index, std::size_t bucket_count,
               std::optional<TensorArg> sparse_grad_indices) {
  const Tensor flat = buffer.tensor();
  std::vector<Tensor> tensors;
  if (parameters) {
    for (const TensorArg& p : *parameters) tensors.push_back(p.tensor());
  }
  std::vector<Dims> shapes;
  if (sizes) {
    for (const Shape& s : *sizes) shapes.push_back(dims_of(s));
  } else if (parameters) {
    for (const Tensor& t : tensors) shapes.push_back(t.shape());
  } else {
    shapes.push_back(flat.shape());
  }
  auto layout = std::make_shared<const BucketLayout>(layout_of(std::move(shapes), std::move(tensors)));
  std::optional<Tensor> indices;
  if (sparse_grad_indices) indices = sparse_grad_indices->tensor();
  new (self) PyGradBucket{GradBucket(index, bucket_count, flat, std::move(layout), std::move(indices)), buffer.object,
                          is_torch_tensor(buffer.object)};
}

nb::list arrays(const PyGradBucket& self, const std::vector<Tensor>& tensors) {
  nb::list result;
  for (const Tensor& t : tensors) result.append(self.array_of(t));
  return result;
}

nb::list sizes(const PyGradBucket& self) {
  nb::list result;
  for (const Dims& dims : self.bucket.sizes()) result.append(tuple_of(dims));
  return result;
}

}  // namespace

void bind_bucket(nb::module_& m) {
  using nb::arg;
  nb::class_<PyGradBucket>(m, "GradBucket", nb::type_slots(gc_slots<PyGradBucket, traverse, clear>),
                           nb::is_weak_referenceable(),
                           "The gradients of some parameters in one flat buffer, passed to a communication hook.")
      .def("__init__", &construct, arg("buffer"), arg("sizes") = nb::none(), arg("parameters") = nb::none(),
           arg("index") = 0, arg("bucket_count") = 1, arg("sparse_grad_indices") = nb::none(),
           "Creates a bucket from a flat array, to test a hook. Without sizes it holds one gradient.")
      .def(
          "index", [](const PyGradBucket& b) { return b.bucket.index(); },
          "Returns the position of this bucket in the launch order of the step.")
      .def(
          "bucket_count", [](const PyGradBucket& b) { return b.bucket.bucket_count(); },
          "Returns the number of buckets of the step.")
      .def(
          "is_last", [](const PyGradBucket& b) { return b.bucket.is_last(); }, "True for the last bucket of the step.")
      .def("buffer", &PyGradBucket::get_buffer, nb::sig("def buffer(self) -> typing.Any"),
           "Returns the flat buffer: a NumPy array, or a torch tensor under torch.")
      .def(
          "set_buffer",
          [](PyGradBucket& b, const TensorArg& buffer) {
            b.bucket.set_buffer(buffer.tensor());
            b.buffer = buffer.object;
          },
          arg("buffer"), "Replaces the buffer by one of the same number of elements; its dtype may differ.")
      .def(
          "set_contribution",
          [](PyGradBucket& b, const TensorArg& contribution) { b.bucket.set_contribution(contribution.tensor()); },
          arg("contribution"),
          "Reports this rank's gradients as the other ranks decode them, as a flat array. error_feedback keeps the "
          "difference to the hook's input as the residual. Call once per run, before the hook's Future completes; the "
          "values are copied.")
      .def(
          "wants_contribution", [](const PyGradBucket& b) { return b.bucket.wants_contribution(); },
          "True if an error_feedback wrapper requires set_contribution.")
      .def(
          "gradients", [](const PyGradBucket& b) { return arrays(b, b.bucket.gradients()); },
          nb::sig("def gradients(self) -> list[typing.Any]"),
          "Returns views of the buffer with the parameters' shapes.")
      .def(
          "parameters", [](const PyGradBucket& b) { return arrays(b, b.bucket.parameters()); },
          nb::sig("def parameters(self) -> list[typing.Any]"), "Returns the parameters of these gradients.")
      .def(
          "offsets", [](const PyGradBucket& b) { return b.bucket.offsets(); },
          "Returns the offset of each gradient in the buffer, in elements.")
      .def(
          "lengths", [](const PyGradBucket& b) { return b.bucket.lengths(); },
          "Returns the number of elements of each gradient.")
      .def("sizes", &sizes, nb::sig("def sizes(self) -> list[tuple[int, ...]]"), "Returns the shape of each gradient.")
      .def(
          "sparse_grad_indices",
          [](const PyGradBucket& b) -> nb::object {
            const auto& indices = b.bucket.sparse_grad_indices();
            return indices ? b.array_of(*indices) : nb::none();
          },
          nb::sig("def sparse_grad_indices(self) -> typing.Any"),
          "Returns the row indices of a sparse gradient, or None.")
      .def("__repr__", [](const PyGradBucket& b) {
        return "<hookline.GradBucket " + std::to_string(b.bucket.index()) + " of " +
               std::to_string(b.bucket.bucket_count()) + ": " + to_string(b.bucket.buffer()) + ", " +
               std::to_string(b.bucket.offsets().size()) + " gradients>";
      });
}

}  // namespace hookline::python
