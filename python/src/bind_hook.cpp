// Binds CommHook and the creation of hooks from hook specs.
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/hook/registry.hpp>

#include "bindings.hpp"
#include "gc_slots.hpp"
#include "py_future.hpp"
#include "py_hook.hpp"
#include "tensor_export.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

// Keeps the bucket alive until the hook is done.
nb::object call_hook(nb::handle self, nb::handle, const PyGradBucket& bucket) {
  const auto kept = std::make_shared<GradBucket>(bucket.bucket);
  const HookPtr hook = owning_hook(self);
  const bool for_torch = bucket.for_torch;
  const Future<Tensor> reduced = without_gil([&] { return run_and_parse(hook, *kept); });
  return make_future(reduced, [kept, for_torch](const Tensor& tensor) {
    return PyGradBucket{*kept, nb::object(), for_torch}.array_of(tensor);
  });
}

nb::dict state_dict(const PyHook& self) {
  const std::vector<std::byte> state = without_gil([&] { return save_state(*self.hook, *self.group); });
  nb::dict result;
  result["hook"] = self.hook->name();
  result["state"] = nb::bytes(state.data(), state.size());
  return result;
}

void load_state_dict(PyHook& self, const nb::dict& saved) {
  nb::bytes state;
  if (!saved.contains("state") || !nb::try_cast(saved["state"], state)) {
    throw InvalidArgument("load_state_dict: missing key 'state' with bytes: expected a state_dict() of a hook");
  }
  const std::span bytes = std::as_bytes(std::span(state.c_str(), state.size()));
  without_gil([&] { load_state(*self.hook, *self.group, bytes); });
}

nb::object make(nb::handle hook, const std::shared_ptr<ProcessGroup>& group, nb::handle state,
                bool reports_contribution, bool for_torch) {
  if (hook.is_none()) throw nb::type_error("make_hook: expected a hook spec or a function, got None");
  const nb::object kept = state.is_none() ? nb::cast(group) : nb::borrow(state);
  return make_hook_object(kept, hook, group, for_torch, reports_contribution);
}

PyHook wrap_with_spec(nb::handle self, const std::string& spec) {
  const PyHook& inner = *nb::inst_ptr<PyHook>(self);
  HookConstructionScope scope(false);
  HookPtr hook = without_gil([&] { return wrap(inner.hook, spec, inner.group); });
  scope.references.hooks.push_back(nb::borrow(self));
  return {std::move(hook), inner.group, std::move(scope.references), inner.group_refs.copy()};
}

int traverse(const PyHook& self, visitproc visit, void* arg) {
  for (const nb::object& hook : self.references.hooks) Py_VISIT(hook.ptr());
  for (const auto& function : self.references.functions) {
    Py_VISIT(function->state().ptr());
    Py_VISIT(function->function().ptr());
  }
  return self.group_refs.traverse(visit, arg);
}

void clear(PyHook& self) {
  const HookPtr hook = std::exchange(self.hook, std::make_shared<NoopHook>());
  const HookReferences references = std::exchange(self.references, {});
}

}  // namespace

nb::list hook_stats_of(const CommHookInterface& hook) {
  nb::list all;
  for (const HookStats& stats : hook.stats()) {
    nb::dict d;
    d["bucket"] = stats.bucket;
    d["values"] = stats.values;
    d["bytes_sent"] = stats.bytes_sent;
    d["ratio"] = stats.ratio;
    d["encode_time"] = stats.encode_time;
    d["decode_time"] = stats.decode_time;
    d["residual_norm"] = stats.residual_norm;
    d["relative_error"] = stats.relative_error ? nb::object(nb::float_(*stats.relative_error)) : nb::none();
    all.append(d);
  }
  return all;
}

void bind_hook(nb::module_& m) {
  using nb::arg;
  nb::class_<PyHook>(m, "CommHook", nb::type_slots(gc_slots<PyHook, traverse, clear>), nb::is_weak_referenceable(),
                     "A native communication hook; created by make_hook.")
      .def_prop_ro("name", [](const PyHook& self) { return self.hook->name(); })
      .def("__call__", &call_hook, arg("state").none(), arg("bucket"),
           nb::sig("def __call__(self, state: typing.Any, bucket: GradBucket) -> Future[typing.Any]"),
           "Runs the hook on a bucket, with the signature of a Python hook. Ignores the state.")
      .def(
          "stats", [](const PyHook& self) { return hook_stats_of(*self.hook); },
          nb::sig("def stats(self) -> list[dict[str, typing.Any]]"),
          "What the last step's buckets cost: bytes sent, ratio, encode_time, decode_time, residual_norm, and "
          "relative_error behind '… | compare'.")
      .def("state_dict", &state_dict, nb::sig("def state_dict(self) -> dict[str, typing.Any]"),
           "Returns what the hook keeps between steps on this rank: its name, and its state as bytes.")
      .def("load_state_dict", &load_state_dict, arg("state_dict"),
           nb::sig("def load_state_dict(self, state_dict: dict[str, typing.Any]) -> None"),
           "Restores the state from state_dict(). Raises InvalidArgument for the state of another hook, model, rank or "
           "number of ranks. Does not execute code from the state.")
      .def("__or__", &wrap_with_spec, arg("spec"),
           "Wraps this hook with the wrappers of a spec: hook | 'error_feedback'. Do not use the inner hook by itself "
           "at "
           "the same time.")
      .def(
          "__reduce__",
          [](const PyHook&) -> nb::object {
            throw nb::type_error("a CommHook cannot be pickled, since its group cannot. Save its state_dict().");
          },
          nb::sig("def __reduce__(self) -> typing.NoReturn"))
      .def("__repr__", [](const PyHook& self) { return "<hookline.CommHook " + self.hook->name() + ">"; });
  m.def(
      "make_hook", &make, arg("hook"), arg("group"), arg("state").none() = nb::none(), nb::kw_only(),
      arg("reports_contribution") = false, arg("for_torch") = false,
      nb::sig("def make_hook(hook: str | typing.Callable[[typing.Any, GradBucket], typing.Any], group: ProcessGroup, "
              "state: typing.Any = None, *, reports_contribution: bool = False, for_torch: bool = False) -> CommHook"),
      "Creates a hook from a hook spec, a name with options in parentheses followed by wrappers: 'int8(block=512) | "
      "error_feedback'; or from a function hook(state, bucket), whose default state is the group. Pass "
      "reports_contribution if the function calls bucket.set_contribution in every run, as error_feedback requires. "
      "With for_torch, buckets have torch tensors.");
  m.def(
      "register_factory",
      [](const std::string& name, const std::string& description) {
        // Python owns the factory, so that it is released at finalization.
        const auto make = [name](const std::shared_ptr<ProcessGroup>& group, HookOptions& options, const HookPtr&) {
          return make_registered_hook(name, group, options);
        };
        register_hook(name, HookRole::base, make, description);
      },
      arg("name"), arg("description"), "The native part of hookline.register_hook.");
  m.def("unregister_factory", &unregister_hook, arg("name"), "The native part of hookline.unregister_hook.");
  m.def(
      "registered_hooks",
      [](bool base_only) {
        nb::dict result;
        for (const HookDescription& h : registered_hooks()) {
          if (!base_only || h.role != HookRole::wrapper) result[h.name.c_str()] = h.description;
        }
        return result;
      },
      arg("base_only") = false, nb::sig("def registered_hooks(base_only: bool = False) -> dict[str, str]"),
      "Returns the registered hooks with their descriptions; with base_only, without pure wrappers.");
  m.def(
      "hook_options",
      [](const std::string& name) {
        nb::dict result;
        for (const HookOption& o : without_gil([&] { return hook_options(name); })) {
          result[o.name.c_str()] = nb::make_tuple(o.default_value, o.expected);
        }
        return result;
      },
      arg("name"), nb::sig("def hook_options(name: str) -> dict[str, tuple[str, str]]"),
      "Returns the options of a registered hook: the default value and the expected values of each.");
}

}  // namespace hookline::python
