// Calling a Python hook, and reading what it returned.
#include "py_hook.hpp"

#include <any>
#include <string>
#include <utility>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/registry.hpp>

#include "natively.hpp"
#include "py_error.hpp"
#include "py_future.hpp"
#include "tensor_export.hpp"
#include "tensor_import.hpp"

namespace hookline::python {
namespace {

nb::object helpers() { return nb::module_::import_("hookline._hooks"); }

/// A hookline.Future of what the hook returned. Torch is not imported for this: who has none of it returns none.
nb::object as_future(nb::object returned, const std::string& hook) {
  if (nb::isinstance<PyFuture>(returned)) return returned;
  if (nb::cast<bool>(helpers().attr("is_torch_future")(returned))) return helpers().attr("from_torch")(returned);
  throw InvalidArgument("the hook " + hook +
                        ": DDP communication hook's callback must return a torch.futures.Future object, but got " +
                        nb::cast<std::string>(nb::module_::import_("hookline._names").attr("class_name")(returned)) +
                        "; return a hookline.Future or a torch.futures.Future of the reduced buffer");
}

}  // namespace

nb::object PyGradBucket::array_of(const Tensor& tensor) const {
  if (!for_torch) return to_numpy(tensor);
  return nb::module_::import_("torch").attr("from_dlpack")(tensor);
}

nb::object PyGradBucket::get_buffer() {
  if (!buffer.is_valid()) buffer = array_of(bucket.buffer());
  return buffer;
}

PythonCommHook::PythonCommHook(nb::object state, nb::object hook, std::string name, bool for_torch,
                               bool reports_contribution)
    : CommHookInterface({.name = std::move(name), .may_block = true, .reports_contribution = reports_contribution}),
      state_(std::move(state)),
      function_(std::move(hook)),
      for_torch_(for_torch) {}

Future<HookResult> PythonCommHook::run_hook(GradBucket& bucket) {
  return in_python("the hook " + name() + " was not called", [&] {
    const nb::object argument = nb::cast(PyGradBucket{bucket, nb::object(), for_torch_});
    const nb::object returned = function_.object()(state_.object(), argument);
    const Future<PyRef> outcome = share_future(as_future(returned, name()));
    return outcome.then([](const Future<PyRef>& done) { return HookResult(done.value()); });
  });
}

Tensor PythonCommHook::parse_hook_result(const HookResult& result) {
  const auto* reference = std::any_cast<PyRef>(&result);
  if (!reference) throw InvalidArgument("the result of the hook " + name() + " is not one of Python's");
  return in_python("the result of the hook " + name() + " was not read", [&] {
    nb::object object = reference->object();
    if ((PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) && nb::len(object) == 1) object = object[0];
    if (object.is_none() || PyList_Check(object.ptr()) || PyTuple_Check(object.ptr())) {
      throw InvalidArgument("the Future of the hook " + name() + " carried " +
                            (object.is_none() ? "None" : "a list of " + std::to_string(nb::len(object))) +
                            "; it must carry one array, of the bucket's size and dtype");
    }
    return to_tensor(object);
  });
}

HookPtr hook_of(nb::handle state, nb::handle hook, const std::shared_ptr<ProcessGroup>& group, bool for_torch,
                bool reports_contribution) {
  if (hook.is_none()) return std::make_shared<AllreduceHook>(group);
  if (nb::isinstance<PyHook>(hook)) return nb::cast<PyHook&>(hook).hook;
  if (PyUnicode_Check(hook.ptr())) {
    const std::string text = nb::str(hook).c_str();
    return natively([&] { return make_hook(text, group); });  // the ranks may have to talk to each other
  }
  const nb::object native = helpers().attr("native_hook")(state, hook, group);
  if (!native.is_none()) return nb::cast<PyHook&>(native).hook;
  std::string name = nb::cast<std::string>(helpers().attr("check_hook")(hook));
  return std::make_shared<PythonCommHook>(nb::borrow(state), nb::borrow(hook), std::move(name), for_torch,
                                          reports_contribution);
}

}  // namespace hookline::python
