// Binds Reducer, the base of the DataParallel classes for NumPy and torch, and broadcast_coalesced.
#include <cmath>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/set.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <hookline/core/error.hpp>
#include <hookline/reducer/broadcast_coalesced.hpp>
#include <hookline/reducer/reducer.hpp>

#include "bindings.hpp"
#include "gc_slots.hpp"
#include "py_error.hpp"
#include "py_hook.hpp"
#include "py_optimizer.hpp"
#include "tensor_list.hpp"
#include "timeout_arg.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

/// The Python class Reducer. The native reducer is null after the garbage collector has cleared the object.
struct PyReducer {
  PyRef hook;  // the CommHook without overlapped optimizer steps; first, so that it is destroyed last
  std::unique_ptr<Reducer> reducer;
  std::shared_ptr<ProcessGroup> group;
  std::unique_ptr<Reducer::NoSync> no_sync;
  bool for_torch = false;
  PyRef optimizer;
  std::optional<double> clip_norm;
  GroupRefs group_refs;

  Reducer* operator->() const {
    if (!reducer) throw InvalidArgument("this reducer was cleared by the garbage collector");
    return reducer.get();
  }
};

// The hook, and the traceback of the exception that broke the reducer, may refer to the reducer's owner.
int traverse(const PyReducer& self, visitproc visit, void* arg) {
  if (!self.reducer) return 0;
  Py_VISIT(self.optimizer.get().ptr());
  Py_VISIT(self.hook.get().ptr());
  try {
    if (const std::exception_ptr failure = self->failure()) std::rethrow_exception(failure);
  } catch (const PythonException& e) {
    Py_VISIT(e.exception().get().ptr());
  } catch (...) {  // not a Python exception
  }
  return self.group_refs.traverse(visit, arg);
}

void clear(PyReducer& self) {
  self.no_sync.reset();
  const PyRef hook = std::move(self.hook);
  const std::unique_ptr<Reducer> reducer = std::move(self.reducer);
  const PyRef optimizer = std::move(self.optimizer);
  const std::shared_ptr<ProcessGroup> group = std::move(self.group);
  const GroupRefs group_refs = std::move(self.group_refs);
}

using Key = std::variant<std::size_t, std::string>;
using Names = std::set<std::string>;

std::size_t index_of(const PyReducer& self, const Key& key) {
  if (const auto* index = std::get_if<std::size_t>(&key)) return *index;
  return self->index_of(std::get<std::string>(key));
}

/// Returns the limits for a cap on all buckets, the default limits without one.
BucketLimits limits_of(std::optional<double> bucket_cap_mb) {
  if (!bucket_cap_mb) return {};
  constexpr double mib = 1 << 20;
  if (!(*bucket_cap_mb > 0) || !std::isfinite(*bucket_cap_mb)) {
    throw InvalidArgument("bucket_cap_mb: expected a positive number, got " + std::to_string(*bucket_cap_mb));
  }
  const auto bytes = static_cast<std::size_t>(*bucket_cap_mb * mib);
  return {.first_bucket_bytes = bytes, .bucket_bytes = bytes};
}

void construct(PyReducer* self, const std::vector<std::pair<std::string, TensorArg>>& params,
               std::shared_ptr<ProcessGroup> group, nb::handle hook, nb::handle state,
               std::optional<double> bucket_cap_mb, bool find_unused_parameters, bool static_graph,
               const std::string& reduction, bool broadcast_parameters, std::optional<TimeoutArg> timeout,
               const Names& sparse, const Names& ignored, const Names& reduce_last, const Names& frozen,
               const std::optional<std::vector<std::pair<std::string, TensorArg>>>& buffers,
               std::optional<std::vector<ParameterIndices>> buckets, bool for_torch, nb::object optimizer,
               std::optional<double> clip_norm) {
  std::vector<Parameter> list;
  list.reserve(params.size());
  Names unknown = sparse;
  unknown.insert(ignored.begin(), ignored.end());
  unknown.insert(reduce_last.begin(), reduce_last.end());
  unknown.insert(frozen.begin(), frozen.end());
  for (const auto& [name, array] : params) {
    list.push_back({name, array.tensor(), sparse.contains(name), ignored.contains(name), reduce_last.contains(name),
                    frozen.contains(name)});
    unknown.erase(name);
  }
  if (!unknown.empty()) throw InvalidArgument("Reducer: unknown parameter '" + *unknown.begin() + "'");
  ReducerOptions options;
  options.limits = limits_of(bucket_cap_mb);
  options.find_unused_parameters = find_unused_parameters;
  options.static_graph = static_graph;
  if (reduction != "mean" && reduction != "sum")
    throw InvalidArgument("Reducer: reduction: expected 'mean' or 'sum', got '" + reduction + "'");
  options.reduction = reduction == "sum" ? GradientReduction::sum : GradientReduction::mean;
  options.broadcast_parameters = broadcast_parameters;
  options.timeout = timeout;
  options.buckets = std::move(buckets);
  if (buffers) {
    for (const auto& [name, array] : *buffers) options.buffers.push_back({name, array.tensor()});
  }
  const nb::object hook_state = state.is_none() ? nb::cast(group) : nb::borrow(state);
  GroupRefs group_refs;
  group = group_refs.track(std::move(group));
  PyRef hook_object(make_hook_object(hook_state, hook, group, for_torch));
  PyRef stepper = make_stepper(std::move(optimizer));
  HookPtr hook_with_steps = with_overlapped_steps(hook_of(hook_object.get()), stepper, clip_norm, for_torch);
  auto reducer = without_gil(
      [&] { return std::make_unique<Reducer>(std::move(list), group, std::move(hook_with_steps), options); });
  new (self) PyReducer{std::move(hook_object), std::move(reducer), std::move(group),     nullptr, for_torch,
                       std::move(stepper),     clip_norm,          std::move(group_refs)};
}

nb::object stats(const PyReducer& self) {
  const StepStats s = self->stats();
  nb::list buckets;
  for (const BucketStats& b : s.buckets) {
    nb::dict d;
    d["index"] = b.index;
    d["parameters"] = b.parameters;
    d["bytes"] = b.bytes;
    d["bytes_sent"] = b.bytes_sent;
    d["ready"] = b.ready;
    d["launched"] = b.launched;
    d["done"] = b.done;
    buckets.append(d);
  }
  nb::dict d;
  d["step"] = s.step;
  d["hook"] = s.hook;
  d["bytes_sent"] = s.bytes_sent;
  d["backward"] = s.backward;
  d["exposed_comm"] = s.exposed_comm;
  d["total"] = s.total;
  d["rebuilt"] = s.rebuilt;
  d["unused"] = s.unused;
  d["buckets"] = buckets;
  d["hook_stats"] = hook_stats_of(*self->hook());
  return d;
}

void bind_steps(nb::class_<PyReducer>& reducer) {
  using nb::arg;
  reducer
      .def(
          "mark_ready",
          [](PyReducer& self, const Key& parameter, std::optional<TensorArg> gradient) {
            const std::size_t index = index_of(self, parameter);
            if (!gradient) return without_gil([&] { self->mark_ready(index); });
            const Tensor tensor = gradient->tensor();
            without_gil([&] { self->mark_ready(index, tensor); });
          },
          arg("parameter"), arg("gradient") = nb::none(),
          "Marks the gradient of a parameter as ready. It is in gradient(parameter), or in the given array, which "
          "finalize() overwrites with the mean.")
      .def(
          "mark_ready_sparse",
          [](PyReducer& self, const Key& parameter, const TensorArg& indices, const TensorArg& values) {
            const std::size_t index = index_of(self, parameter);
            const SparseGradient gradient{indices.tensor(), values.tensor()};
            without_gil([&] { self->mark_ready(index, gradient); });
          },
          arg("parameter"), arg("indices"), arg("values"),
          "Marks the gradient of a sparse parameter as ready: row indices (int64) and the rows.")
      .def(
          "mark_unused",
          [](PyReducer& self, const Key& parameter, const TensorArg& gradient) {
            const std::size_t index = index_of(self, parameter);
            const Tensor tensor = gradient.tensor();
            without_gil([&] { self->mark_unused(index, tensor); });
          },
          arg("parameter"), arg("gradient"),
          "Marks a parameter that this backward pass does not use, but that has a gradient from earlier passes. The "
          "gradient takes part in the mean, and gets it if any rank marks the parameter as ready. With static_graph, "
          "call this in later steps before the first mark_ready().")
      .def(
          "mark_unused_sparse",
          [](PyReducer& self, const Key& parameter, const TensorArg& indices, const TensorArg& values) {
            const std::size_t index = index_of(self, parameter);
            const SparseGradient gradient{indices.tensor(), values.tensor()};
            without_gil([&] { self->mark_unused(index, gradient); });
          },
          arg("parameter"), arg("indices"), arg("values"), "mark_unused() for a sparse parameter.")
      .def(
          "discard_step", [](PyReducer& self) { without_gil([&] { self->discard_step(); }); },
          "Discards the marks of a failed backward pass. Valid only before any of its buckets is launched.")
      .def(
          "finalize", [](PyReducer& self) { without_gil([&] { self->finalize(); }); },
          "Blocks until all buckets are reduced.")
      .def(
          "gradient", [](PyReducer& self, const Key& key) { return self->gradient(index_of(self, key)); },
          arg("parameter"), "Returns the view of a parameter's gradient in its bucket.")
      .def(
          "copy_gradient",
          [](PyReducer& self, const Key& key, const TensorArg& destination) {
            const std::size_t index = index_of(self, key);
            const Tensor tensor = destination.tensor();
            without_gil([&] { self->copy_gradient(index, tensor); });
          },
          arg("parameter"), arg("destination"), "Copies a parameter's mean into an array, after finalize().")
      .def(
          "sparse_gradient",
          [](PyReducer& self, const Key& key) {
            const SparseGradient g = self->sparse_gradient(index_of(self, key));
            return std::pair(g.indices, g.values);
          },
          arg("parameter"), "Returns the reduced rows of a sparse parameter: indices and values.");
}

void bind_between_steps(nb::class_<PyReducer>& reducer) {
  using nb::arg;
  reducer
      .def(
          "replace_comm_hook",
          [](PyReducer& self, nb::handle state, nb::handle hook) {
            // Keeps the old hooks until the new one is set. `inner`, which `before` may wrap, is destroyed last, with
            // the GIL.
            const PyRef inner = self.hook;
            const HookPtr before = self->hook();
            PyRef made(make_hook_object(state, hook, self.group, self.for_torch));
            self->replace_hook(
                with_overlapped_steps(hook_of(made.get()), self.optimizer, self.clip_norm, self.for_torch));
            self.hook = std::move(made);
          },
          arg("state").none(), arg("hook").none(),
          "Replaces the hook from the next step on, by a hook spec, a CommHook, or a function with its state.")
      .def_prop_ro(
          "comm_hook",
          [](const PyReducer& self) {
            static_cast<void>(self.operator->());  // throws if the garbage collector has cleared the object
            return self.hook.object();
          },
          nb::sig("def comm_hook(self) -> CommHook"), "The current hook, for its stats() and state_dict().")
      .def(
          "begin_no_sync",
          [](PyReducer& self) {
            if (self.no_sync) throw InvalidArgument("begin_no_sync: no_sync contexts cannot be nested");
            // NOLINTNEXTLINE(modernize-make-unique): the scope cannot be moved
            self.no_sync = std::unique_ptr<Reducer::NoSync>(new Reducer::NoSync(self->no_sync()));
          },
          "Accumulates gradients locally until end_no_sync().")
      .def(
          "end_no_sync", [](PyReducer& self) { self.no_sync.reset(); },
          "Ends begin_no_sync(). The next step reduces the accumulated gradients.")
      .def(
          "set_weight", [](PyReducer& self, double w) { without_gil([&] { self->set_weight(w); }); }, arg("weight"),
          "Sets the weight of this rank's gradients in subsequent means. Collective.")
      .def_prop_rw(
          "step_id", [](const PyReducer& self) { return self->step_id(); },
          [](PyReducer& self, std::optional<std::int64_t> id) { self->set_step_id(id); },
          nb::for_setter(arg("id").none()),
          "A user-defined number for subsequent steps, from 0 to 2**32 - 1; None for none. If it differs between "
          "ranks, "
          "the first bucket of a step fails with a Mismatch.")
      .def(
          "begin_join",
          [](PyReducer& self, bool initial) { self->begin_join({.divide_by_initial_world_size = initial}); },
          arg("divide_by_initial_world_size") = true, "Allows different numbers of steps per rank until end_join().")
      .def(
          "end_join", [](PyReducer& self) { without_gil([&] { self->end_join(); }); },
          "Takes part in the steps of other ranks until all ranks have called end_join().")
      .def(
          "buckets", [](const PyReducer& self) { return self->buckets(); },
          "Returns the parameter indices of each bucket; final from the second step on.")
      .def("stats", &stats, nb::sig("def stats(self) -> dict[str, typing.Any]"),
           "Returns statistics of the last step.");
}

}  // namespace

void bind_reducer(nb::module_& m) {
  using nb::arg;
  nb::class_<PyReducer> reducer(m, "Reducer", nb::type_slots(gc_slots<PyReducer, traverse, clear>),
                                nb::is_weak_referenceable(),
                                "Averages gradients over the ranks of a group during the backward pass.");
  reducer.def("__init__", &construct, arg("params"), arg("process_group"), arg("hook") = nb::none(),
              arg("state") = nb::none(), arg("bucket_cap_mb") = nb::none(), arg("find_unused_parameters") = false,
              arg("static_graph") = false, arg("reduction") = "mean", arg("broadcast_parameters") = true,
              arg("timeout") = nb::none(), arg("sparse") = Names(), arg("ignored") = Names(),
              arg("reduce_last") = Names(), arg("frozen") = Names(), arg("buffers") = nb::none(),
              arg("buckets") = nb::none(), arg("for_torch") = false, arg("optimizer") = nb::none(),
              arg("clip_norm") = nb::none());
  bind_steps(reducer);
  bind_between_steps(reducer);
  m.def(
      "broadcast_coalesced",
      [](ProcessGroup& group, nb::handle tensors, std::size_t buffer_size, int root) {
        const TensorList list = tensors_of(tensors);
        without_gil([&] { broadcast_coalesced(group, list.tensors, buffer_size, root); });
      },
      arg("group"), arg("tensors"), arg("buffer_size") = kBroadcastBufferBytes, arg("root") = 0,
      "Broadcasts the root's arrays to all ranks, in buffers of at most buffer_size bytes.");
}

}  // namespace hookline::python
