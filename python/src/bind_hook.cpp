// Binds hooks of C++'s, and making them by name.
#include <memory>
#include <string>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/hook/registry.hpp>

#include "natively.hpp"
#include "py_future.hpp"
#include "py_hook.hpp"
#include "rooms.hpp"
#include "tensor_export.hpp"

namespace hookline::python {
namespace {

// The bucket stays alive until the hook is through.
nb::object call(const PyHook& self, nb::handle, const PyGradBucket& bucket) {
  const auto kept = std::make_shared<GradBucket>(bucket.bucket);
  const HookPtr hook = self.hook;
  const bool for_torch = bucket.for_torch;
  const Future<Tensor> reduced = natively([&] { return run_and_parse(hook, *kept); });
  return make_future(reduced, [kept, for_torch](const Tensor& tensor) {
    return PyGradBucket{*kept, nb::object(), for_torch}.array_of(tensor);
  });
}

}  // namespace

void bind_hook(nb::module_& m) {
  using nb::arg;
  nb::class_<PyHook>(m, "CommHook", nb::is_weak_referenceable(),
                     "A communication hook that runs without Python; made by make_hook.")
      .def_prop_ro("name", [](const PyHook& self) { return self.hook->name(); })
      .def("__call__", &call, arg("state").none(), arg("bucket"),
           nb::sig("def __call__(self, state: typing.Any, bucket: GradBucket) -> Future[typing.Any]"),
           "As a function of Python's would be called; the state is of no matter.")
      .def("__repr__", [](const PyHook& self) { return "<hookline.CommHook " + self.hook->name() + ">"; });
  m.def(
      "make_hook",
      [](const std::string& text, std::shared_ptr<ProcessGroup> group) {
        return PyHook{make_hook(text, std::move(group))};
      },
      arg("text"), arg("group"),
      "The hook of a text: a name with options in parentheses, and wrappers behind it: 'int8(block=512) | "
      "error_feedback'.");
  m.def(
      "registered_hooks",
      [](bool alone) {
        nb::dict result;
        for (const HookDescription& h : registered_hooks()) {
          if (!alone || h.place != HookPlace::around) result[h.name.c_str()] = h.description;
        }
        return result;
      },
      arg("alone") = false, nb::sig("def registered_hooks(alone: bool = False) -> dict[str, str]"),
      "The hooks that make_hook knows, with what they do; or those only that need no other to be wrapped around.");
}

}  // namespace hookline::python
