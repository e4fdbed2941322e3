// Reads the Python object inside PyTorch's PyWorkHolder, which does not validate it.
#include "adapter/libtorch/python_work.hpp"

#include <memory>
#include <string>

#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/distributed/c10d/PyProcessGroup.hpp>

#include <hookline/core/error.hpp>

namespace hookline::libtorch {
namespace {

using Holder = c10d::PyProcessGroup::PyWorkHolder;

/// Access to a private member: explicit instantiations ignore access control.
struct WrappedObjectTag {
  using Pointer = pybind11::object Holder::*;
  friend Pointer member(WrappedObjectTag);
};
template <class Tag, typename Tag::Pointer Member>
struct MemberAccess {
  friend typename Tag::Pointer member(Tag) { return Member; }
};
template struct MemberAccess<WrappedObjectTag, &Holder::pyWork_>;

std::string type_of(const pybind11::object& object) { return pybind11::str(pybind11::type::of(object)); }

}  // namespace

c10::intrusive_ptr<c10::ivalue::Future> future_of_work(const c10::intrusive_ptr<c10d::Work>& work) {
  auto* const holder = dynamic_cast<Holder*>(work.get());
  if (!holder) return work->getFuture();
  const pybind11::gil_scoped_acquire gil;
  const pybind11::object& object = holder->*member(WrappedObjectTag());
  if (object.is_none()) {
    throw InvalidArgument(
        "process group: a method of the Python class returned None: expected a Work. Return the operation's Work.");
  }
  const pybind11::object future = object.attr("get_future")();
  if (!pybind11::isinstance<torch::jit::PythonFutureWrapper>(future)) {
    throw InvalidArgument("get_future() of " + type_of(object) +
                          ": wrong return value: expected a torch.futures.Future, got " + type_of(future));
  }
  return future.cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
}

bool overrides_wait(const c10::intrusive_ptr<c10d::Work>& work) {
  auto* const holder = dynamic_cast<Holder*>(work.get());
  if (!holder) return false;
  const pybind11::gil_scoped_acquire gil;
  const pybind11::object& object = holder->*member(WrappedObjectTag());
  const pybind11::object base = pybind11::module_::import("torch._C._distributed_c10d").attr("Work");
  return !pybind11::type::of(object).attr("wait").is(base.attr("wait"));
}

std::exception_ptr exception_from(const c10::IValue& value) {
  if (!value.isPyObject()) return nullptr;
  const pybind11::gil_scoped_acquire gil;
  const pybind11::object object = torch::jit::toPyObject(value);
  if (!PyExceptionInstance_Check(object.ptr())) return nullptr;
  PyErr_SetObject(PyExceptionInstance_Class(object.ptr()), object.ptr());
  return std::make_exception_ptr(pybind11::error_already_set());
}

}  // namespace hookline::libtorch
