// Binds PowerSGDState with PyTorch's names.
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>
#include <hookline/hook/powersgd.hpp>

#include "bindings.hpp"
#include "default_group.hpp"
#include "gc_slots.hpp"
#include "py_error.hpp"
#include "py_hook.hpp"
#include "py_object.hpp"
#include "tensor_export.hpp"

namespace hookline::python {
namespace {

using State = PowerSGDState;
using GroupPtr = std::shared_ptr<ProcessGroup>;

/// Hooks own the native state but not this Python object. hookline.torch caches hooks in a WeakKeyDictionary by this
/// object, so a reference from a hook would keep the entry alive forever.
struct PyPowerSGDState {
  std::shared_ptr<State> state;
  GroupRefs group_refs;

  State* operator->() const { return state.get(); }
};

nb::object powersgd_module() { return nb::module_::import_("hookline._powersgd"); }

DType parse_wire_dtype(const std::string& name) {
  if (name == "fp16") return DType::f16;
  if (name == "bf16") return DType::bf16;
  if (name != "fp32") throw InvalidArgument("PowerSGD: wire: expected one of fp32, fp16, bf16, got '" + name + "'");
  return DType::f32;
}

std::string wire_name(DType wire) { return wire == DType::f16 ? "fp16" : wire == DType::bf16 ? "bf16" : "fp32"; }

std::uint64_t checked_seed(std::int64_t seed) {
  if (seed < 0) throw InvalidArgument("PowerSGD: random_seed: expected at least 0, got " + std::to_string(seed));
  return static_cast<std::uint64_t>(seed);
}

// Logs asynchronously on the callback thread, so that the hook does not wait for the GIL.
void log_stats(std::uint64_t step, const State::Totals& totals) {
  const std::shared_ptr<Executor> executor = callback_executor();
  if (!executor) return;
  executor->post([step, totals] {
    with_gil([&] {
      try {
        powersgd_module().attr("log_stats")(step, totals.numel_before, totals.numel_after, totals.rate);
      } catch (nb::python_error& e) {
        e.discard_as_unraisable("hookline.PowerSGDState");
      }
    });
  });
}

/// Calls `f(name, member, doc)` for every option with the same type in Python and C++.
template <class F>
void for_each_option(F f) {
  using Options = PowerSGDOptions;
  f("matrix_approximation_rank", &Options::matrix_approximation_rank, "The number of columns of a factor.");
  f("start_powerSGD_iter", &Options::start_powerSGD_iter, "The number of initial steps with plain allreduce.");
  f("min_compression_rate", &Options::min_compression_rate, "The minimum rate for a tensor to be compressed.");
  f("use_error_feedback", &Options::use_error_feedback, "If True, adds the residual in the next step.");
  f("warm_start", &Options::warm_start, "If True, a step starts with the factor of the previous step.");
  f("orthogonalization_epsilon", &Options::orthogonalization_epsilon, "A value added to the norms of the columns.");
  f("compression_stats_logging_frequency", &Options::compression_stats_logging_frequency,
    "The number of steps between log messages.");
  f("batch_tensors_with_same_shape", &Options::batch_tensors_with_same_shape,
    "Has no effect: the matrices of a bucket are always sent together.");
}

std::shared_ptr<State> make_state(GroupPtr group, const PowerSGDOptions& options) {
  auto state = std::make_shared<State>(std::move(group), options);
  state->set_report(log_stats);
  return state;
}

void construct(PyPowerSGDState* self, GroupPtr group, std::int64_t rank, std::int64_t start, double min_rate,
               bool feedback, bool warm, double epsilon, std::int64_t seed, std::int64_t frequency, bool batch,
               const std::string& wire) {
  PowerSGDOptions options;
  options.matrix_approximation_rank = rank;
  options.start_powerSGD_iter = start;
  options.min_compression_rate = min_rate;
  options.use_error_feedback = feedback;
  options.warm_start = warm;
  options.orthogonalization_epsilon = epsilon;
  options.random_seed = checked_seed(seed);
  options.compression_stats_logging_frequency = std::max<std::int64_t>(1, frequency);
  options.batch_tensors_with_same_shape = batch;
  options.wire = parse_wire_dtype(wire);
  GroupRefs group_refs;
  group = group_refs.track(std::move(group));
  new (self) PyPowerSGDState{make_state(std::move(group), options), std::move(group_refs)};
}

int traverse(const PyPowerSGDState& self, visitproc visit, void* arg) { return self.group_refs.traverse(visit, arg); }

template <class Value>
void set_option(const PyPowerSGDState& self, Value PowerSGDOptions::* member, Value value) {
  PowerSGDOptions options = self->options();
  options.*member = value;
  self->set_options(options);
}

template <auto Member>
nb::dict tensors_by_bucket(const PyPowerSGDState& self) {
  nb::dict result;
  for (const auto& [bucket, kept] : self->bucket_states()) result[nb::int_(bucket)] = to_numpy(kept.*Member);
  return result;
}

nb::dict get_state(const PyPowerSGDState& self) {
  powersgd_module().attr("warn_of_pickling")();
  const std::vector<std::byte> saved = save_state(*self.state);
  const PowerSGDOptions options = self->options();
  nb::dict state;
  for_each_option([&](const char* name, auto member, const char*) { state[name] = options.*member; });
  state["random_seed"] = options.random_seed;
  state["wire"] = wire_name(options.wire);
  state["tensors"] = nb::bytes(saved.data(), saved.size());
  return state;
}

void set_state(PyPowerSGDState* self, const nb::dict& state) {
  PowerSGDOptions options;
  for_each_option([&](const char* name, auto member, const char*) {
    options.*member = nb::cast<std::remove_cvref_t<decltype(options.*member)>>(state[name]);
  });
  options.random_seed = nb::cast<std::uint64_t>(state["random_seed"]);
  options.wire = parse_wire_dtype(nb::cast<std::string>(state["wire"]));
  GroupPtr group;  // null: the group of the model
  if (!state.contains("process_group")) group = group_or_default(nullptr);
  else if (!nb::handle(state["process_group"]).is_none()) group = nb::cast<GroupPtr>(state["process_group"]);
  GroupRefs group_refs;
  const std::shared_ptr<State> restored = make_state(group_refs.track(std::move(group)), options);
  const auto bytes = nb::cast<nb::bytes>(state["tensors"]);
  load_state(*restored, std::as_bytes(std::span(bytes.c_str(), bytes.size())));
  new (self) PyPowerSGDState{restored, std::move(group_refs)};
  powersgd_module().attr("warn_of_unpickling")();
}

void bind_saved_tensors(nb::class_<PyPowerSGDState>& state) {
  state.def_prop_ro(
           "iter", [](const PyPowerSGDState& s) { return s->iter(); }, "The number of steps so far.")
      .def_prop_ro("total_numel_before_compression",
                   [](const PyPowerSGDState& s) { return s->compression_stats().numel_before; })
      .def_prop_ro("total_numel_after_compression",
                   [](const PyPowerSGDState& s) { return s->compression_stats().numel_after; })
      .def_prop_ro(
          "next_stats_report", [](const PyPowerSGDState& s) { return s->next_report(); },
          "The next step that logs the totals.")
      .def_prop_ro("error_dict", &tensors_by_bucket<&State::BucketState::residual>,
                   nb::sig("def error_dict(self) -> dict[int, typing.Any]"), "Copies of the residuals, by bucket.")
      .def_prop_ro("p_memory_dict", &tensors_by_bucket<&State::BucketState::p>,
                   nb::sig("def p_memory_dict(self) -> dict[int, typing.Any]"),
                   "Copies of the left factors, by bucket, in column-major order.")
      .def_prop_ro("q_memory_dict", &tensors_by_bucket<&State::BucketState::q>,
                   nb::sig("def q_memory_dict(self) -> dict[int, typing.Any]"),
                   "Copies of the right factors, by bucket, in column-major order.")
      .def_prop_ro("random_seed", [](const PyPowerSGDState& s) { return s->options().random_seed; })
      .def_prop_ro(
          "rng", [](const PyPowerSGDState& s) { return nb::make_tuple(s->options().random_seed, s->iter()); },
          nb::sig("def rng(self) -> tuple[int, int]"),
          "The seed and the step, which with the parameter's name are the key of the random factors.")
      .def(
          "compression_stats",
          [](const PyPowerSGDState& s) {
            const State::Totals totals = s->compression_stats();
            return nb::make_tuple(totals.rate, totals.numel_before, totals.numel_after);
          },
          nb::sig("def compression_stats(self) -> tuple[float, int, int]"),
          "Returns the rate, and the number of elements before and after compression, over all compressed steps.");
}

}  // namespace

void bind_powersgd(nb::module_& m) {
  using nb::arg;
  nb::class_<PyPowerSGDState> state(m, "PowerSGDState", nb::type_slots(traverse_slots<PyPowerSGDState, traverse>),
                                    nb::is_weak_referenceable(),
                                    "The options and the state of PowerSGD for one model.");
  state
      .def("__init__", &construct, arg("process_group").none() = nb::none(), arg("matrix_approximation_rank") = 1,
           arg("start_powerSGD_iter") = 1000, arg("min_compression_rate") = 2.0, arg("use_error_feedback") = true,
           arg("warm_start") = true, arg("orthogonalization_epsilon") = 0.0, arg("random_seed") = 0,
           arg("compression_stats_logging_frequency") = 10000, arg("batch_tensors_with_same_shape") = false,
           arg("wire") = "fp32")
      .def_prop_rw(
          "process_group", [](const PyPowerSGDState& s) { return untracked(s->group()); },
          [](PyPowerSGDState& s, GroupPtr group) {
            GroupRefs group_refs;
            s->set_group(group_refs.track(std::move(group)));
            s.group_refs = std::move(group_refs);
          },
          nb::for_setter(arg("group").none()),
          nb::for_getter(nb::sig("def process_group(self) -> ProcessGroup | None")),
          "The group to reduce over; None for the group of the model.")
      .def_prop_rw(
          "wire", [](const PyPowerSGDState& s) { return wire_name(s->options().wire); },
          [](const PyPowerSGDState& s, const std::string& wire) {
            set_option(s, &PowerSGDOptions::wire, parse_wire_dtype(wire));
          },
          "The dtype in which the factors are sent: fp32, fp16 or bf16.")
      .def("__getstate__", &get_state, nb::sig("def __getstate__(self) -> dict[str, typing.Any]"))
      .def("__setstate__", &set_state, arg("state"),
           nb::sig("def __setstate__(self, state: dict[str, typing.Any]) -> None"));
  for_each_option([&]<class Value>(const char* name, Value PowerSGDOptions::* member, const char* doc) {
    state.def_prop_rw(
        name, [member](const PyPowerSGDState& self) { return self->options().*member; },
        [member](const PyPowerSGDState& self, Value value) { set_option(self, member, value); }, doc);
  });
  bind_saved_tensors(state);
  m.def(
      "powersgd_hook",
      [](const PyPowerSGDState& with, bool batched, const GroupPtr& group) {
        PyHook made{nullptr, nullptr, {}, with.group_refs.copy()};
        made.group = with->group() ? with->group() : made.group_refs.track(group);
        made.hook = std::make_shared<PowerSGDHook>(with.state, batched, made.group);
        return made;
      },
      arg("state"), arg("batched"), arg("group").none() = nb::none(), "Creates the native hook of a state.");
}

}  // namespace hookline::python
