// Binds the optimizers, and hooks that overlap optimizer steps with communication.
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>
#include <hookline/optimizer/adam.hpp>
#include <hookline/optimizer/sgd.hpp>

#include "bindings.hpp"
#include "default_group.hpp"
#include "py_hook.hpp"
#include "py_optimizer.hpp"
#include "tensor_export.hpp"
#include "tensor_import.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

const std::set<std::string> kBooleanOptions = {"nesterov", "maximize", "amsgrad"};

void add(std::vector<NamedGradient>& all, std::string name, nb::handle parameter, nb::handle gradient) {
  if (!gradient.is_none()) all.push_back({std::move(name), to_tensor(parameter), to_tensor(gradient)});
}

/// Pairs the items of two mappings by name, or of two sequences. Skips missing and None gradients.
std::vector<NamedGradient> gradients_of(nb::handle params, nb::handle grads) {
  std::vector<NamedGradient> all;
  if (PyMapping_Check(params.ptr()) && nb::hasattr(params, "items")) {
    std::set<std::string> known;
    for (const nb::handle item : params.attr("items")()) {
      const auto name = nb::cast<std::string>(item[0]);
      known.insert(name);
      add(all, name, item[1], grads.attr("get")(name, nb::none()));
    }
    for (const nb::handle name : grads) {
      if (known.contains(nb::cast<std::string>(name))) continue;
      throw InvalidArgument("gradient for unknown parameter '" + nb::cast<std::string>(name) + "'");
    }
    return all;
  }
  const nb::list param_list(nb::borrow(params));
  const nb::list grad_list(nb::borrow(grads));
  if (param_list.size() != grad_list.size()) {
    throw InvalidArgument("params and grads have different lengths: " + std::to_string(param_list.size()) + " and " +
                          std::to_string(grad_list.size()));
  }
  for (std::size_t i = 0; i < param_list.size(); ++i) add(all, std::to_string(i), param_list[i], grad_list[i]);
  return all;
}

nb::dict options_of(const Optimizer& self) {
  nb::dict result;
  for (const auto& [name, value] : self.options()) {
    result[name.c_str()] =
        kBooleanOptions.contains(name) ? nb::object(nb::bool_(value != 0)) : nb::object(nb::float_(value));
  }
  return result;
}

void set_options(Optimizer& self, const nb::dict& values) {
  Optimizer::Options options;
  for (const auto& [name, value] : values) options[nb::cast<std::string>(name)] = nb::cast<double>(nb::float_(value));
  self.set_options(options);
}

nb::dict state_dict(const Optimizer& self) {
  const std::map<std::string, ParameterState> state = without_gil([&] { return self.state(); });
  nb::dict parameters;
  for (const auto& [name, parameter_state] : state) {
    nb::dict entry;
    entry["step"] = parameter_state.step;
    for (const auto& [tensor, value] : parameter_state.tensors) entry[tensor.c_str()] = to_numpy(value);
    parameters[name.c_str()] = entry;
  }
  nb::dict result;
  result["optimizer"] = self.name();
  result["options"] = options_of(self);
  result["state"] = parameters;
  return result;
}

void load_state_dict(Optimizer& self, const nb::dict& saved) {
  for (const char* key : {"optimizer", "options", "state"}) {
    if (!saved.contains(key)) {
      throw InvalidArgument("load_state_dict: missing key '" + std::string(key) +
                            "': expected a state_dict() of a hookline optimizer");
    }
  }
  if (const auto saved_name = nb::cast<std::string>(saved["optimizer"]); saved_name != self.name()) {
    throw InvalidArgument("load_state_dict: state of another optimizer: expected " + self.name() + ", got " +
                          saved_name);
  }
  std::map<std::string, ParameterState> state;
  for (const auto& [name, parameter_state] : nb::cast<nb::dict>(saved["state"])) {
    ParameterState& entry = state[nb::cast<std::string>(name)];
    for (const auto& [key, value] : nb::cast<nb::dict>(parameter_state)) {
      const auto tensor = nb::cast<std::string>(key);
      if (tensor == "step") entry.step = nb::cast<std::uint64_t>(value);
      else entry.tensors[tensor] = to_tensor(value);
    }
  }
  self.set_state(state);
  set_options(self, nb::cast<nb::dict>(saved["options"]));
}

void bind_base(nb::module_& m) {
  using nb::arg;
  nb::class_<Optimizer>(m, "Optimizer", nb::is_weak_referenceable(),
                        "A native optimizer with the algorithms of torch.optim.")
      .def_prop_ro("name", [](const Optimizer& self) { return self.name(); })
      .def_prop_rw("lr", &Optimizer::lr, &Optimizer::set_lr,
                   "The learning rate. A new value applies from the next step.")
      .def_prop_ro("options", &options_of, nb::sig("def options(self) -> dict[str, float | bool]"))
      .def(
          "set_options",
          [](Optimizer& self, const nb::kwargs& options) { set_options(self, nb::cast<nb::dict>(options)); },
          arg("options"), nb::sig("def set_options(self, **options: float) -> None"),
          "Changes some options from the next step on.")
      .def(
          "step",
          [](Optimizer& self, nb::handle params, nb::handle grads, double scale) {
            const std::vector<NamedGradient> all = gradients_of(params, grads);
            without_gil([&] { self.step(all, scale); });
          },
          arg("params"), arg("grads"), arg("scale") = 1.0,
          nb::sig("def step(self, params: typing.Any, grads: typing.Any, scale: float = 1.0) -> None"),
          "Updates the parameters in place. params and grads are mappings by name or sequences; None gradients are "
          "skipped. Gradients are multiplied by scale.")
      .def("state_dict", &state_dict, nb::sig("def state_dict(self) -> dict[str, typing.Any]"),
           "Returns the options and a copy of the state of each parameter.")
      .def("load_state_dict", &load_state_dict, arg("state_dict"),
           nb::sig("def load_state_dict(self, state_dict: dict[str, typing.Any]) -> None"),
           "Restores the options and state from state_dict().")
      .def(
          "__reduce__",
          [](const Optimizer&) -> nb::object {
            throw nb::type_error("an Optimizer cannot be pickled. Save its state_dict().");
          },
          nb::sig("def __reduce__(self) -> typing.NoReturn"))
      .def("__repr__", [](const Optimizer& self) { return "<hookline.Optimizer " + self.spec() + ">"; });
}

template <class Type>
void bind_adam(nb::module_& m, const char* name, double weight_decay, const char* text) {
  using nb::arg;
  nb::class_<Type, Optimizer>(m, name, text)
      .def(
          "__init__",
          [](Type* self, double lr, std::pair<double, double> betas, double eps, double decay, bool amsgrad,
             bool maximize) {
            new (self) Type(AdamOptions{.lr = lr,
                                        .beta1 = betas.first,
                                        .beta2 = betas.second,
                                        .eps = eps,
                                        .weight_decay = decay,
                                        .amsgrad = amsgrad,
                                        .maximize = maximize});
          },
          arg("lr") = 1e-3, arg("betas") = std::pair(0.9, 0.999), arg("eps") = 1e-8, arg("weight_decay") = weight_decay,
          arg("amsgrad") = false, nb::kw_only(), arg("maximize") = false);
}

}  // namespace

void bind_optimizer(nb::module_& m) {
  using nb::arg;
  bind_base(m);
  nb::class_<SGD, Optimizer>(m, "SGD", "Stochastic gradient descent, as torch.optim.SGD.")
      .def(
          "__init__",
          [](SGD* self, double lr, double momentum, double dampening, double weight_decay, bool nesterov,
             bool maximize) {
            new (self) SGD({.lr = lr,
                            .momentum = momentum,
                            .dampening = dampening,
                            .weight_decay = weight_decay,
                            .nesterov = nesterov,
                            .maximize = maximize});
          },
          arg("lr") = 1e-3, arg("momentum") = 0.0, arg("dampening") = 0.0, arg("weight_decay") = 0.0,
          arg("nesterov") = false, nb::kw_only(), arg("maximize") = false);
  bind_adam<Adam>(m, "Adam", 0, "Adam, as torch.optim.Adam.");
  bind_adam<AdamW>(m, "AdamW", 1e-2, "Adam with decoupled weight decay, as torch.optim.AdamW.");
  m.def(
      "make_optimizer", [](const std::string& text) { return make_optimizer(text); }, arg("spec"),
      "Creates an optimizer from its spec: 'sgd(lr=0.1, momentum=0.9)', 'adam', 'adamw(lr=1e-3)'.");
  m.def(
      "overlap",
      [](const nb::object& user_hook, nb::object optimizer, std::optional<double> clip_norm,
         std::shared_ptr<ProcessGroup> group, const nb::object& state) {
        if (optimizer.is_none()) throw nb::type_error("overlap: expected an optimizer, got None");
        nb::object hook = user_hook;
        if (!nb::isinstance<PyHook>(hook)) {
          if (hook.is_none()) throw nb::type_error("overlap: expected a hook, got None");
          group = group_or_default(std::move(group));
          hook = make_hook_object(state.is_none() ? nb::cast(group) : state, hook, group, false);
        }
        const PyHook& inner = nb::cast<PyHook&>(hook);
        HookPtr made = with_overlapped_steps(inner.hook, make_stepper(std::move(optimizer)), clip_norm, false);
        return PyHook{std::move(made), inner.group, {.functions = {}, .hooks = {hook}}, inner.group_refs.copy()};
      },
      arg("hook").none(), arg("optimizer").none(), arg("clip_norm") = nb::none(), nb::kw_only(),
      arg("group").none() = nb::none(), arg("state").none() = nb::none(),
      nb::sig("def overlap(hook: CommHook | str | typing.Callable[[typing.Any, GradBucket], typing.Any], "
              "optimizer: typing.Any, clip_norm: float | None = None, *, group: ProcessGroup | None = None, "
              "state: typing.Any = None) -> CommHook"),
      "Returns a hook that steps each bucket's parameters after communication, while later buckets still communicate. "
      "The optimizer is an Optimizer or its spec, a function of a bucket, or an object with step_param(param, grad). "
      "With clip_norm, the steps wait for all gradients, whose total norm is limited to clip_norm. A hook spec or a "
      "function is made a hook of the group, by default the default group, with the state, by default the group.");
}

}  // namespace hookline::python
