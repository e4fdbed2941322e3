// Binds the model averagers.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/group/subgroups.hpp>
#include <hookline/optimizer/model_averager.hpp>

#include "bindings.hpp"
#include "default_group.hpp"
#include "gc_slots.hpp"
#include "group_refs.hpp"
#include "tensor_import.hpp"
#include "tensor_to_array.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

using GroupPtr = std::shared_ptr<ProcessGroup>;

/// Collects the tensors of a sequence of arrays, a mapping to arrays, or an optimizer's param_groups. As in PyTorch,
/// torch parameters without a gradient are skipped.
void collect(std::vector<Tensor>& all, nb::handle params) {
  nb::object items = nb::borrow(params);
  if (PyDict_Check(params.ptr())) {
    if (nb::cast<nb::dict>(params).contains("params")) return collect(all, params["params"]);
    items = params.attr("values")();
  }
  for (const nb::handle item : items) {
    if (PyDict_Check(item.ptr())) collect(all, item);
    else if (!is_torch_tensor(item) || !nb::hasattr(item, "grad") || !item.attr("grad").is_none()) {
      all.push_back(to_tensor(item));
    }
  }
}

bool average(ModelAverager& self, nb::handle params) {
  std::vector<Tensor> tensors;
  collect(tensors, params);
  return without_gil([&] { return self.average_parameters(tensors); });
}

void warn_of_period_one(const char* what) {
  const std::string text =
      std::string("When ") + what +
      " is 1, no need to use model averaging because the communication cost of all-reducing parameters will be no less "
      "than the cost of all-reducing gradients by DistributedDataParallel in the backward pass. Therefore, only "
      "DistributedDataParallel should be used for this case.";
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) != 0) throw nb::python_error();
}

/// A model averager as a Python object.
template <class Averager>
struct PyAverager final : Averager {
  using Averager::Averager;
  GroupRefs group_refs;
};
using PyPeriodicModelAverager = PyAverager<PeriodicModelAverager>;
using PyHierarchicalModelAverager = PyAverager<HierarchicalModelAverager>;

template <class Averager>
int traverse(const PyAverager<Averager>& self, visitproc visit, void* arg) {
  return self.group_refs.traverse(visit, arg);
}

template <class Averager>
nb::type_slots slots() {
  return nb::type_slots(traverse_slots<PyAverager<Averager>, traverse<Averager>>);
}

void construct_periodic(PyPeriodicModelAverager* self, std::int64_t period, std::int64_t warmup_steps, GroupPtr group) {
  GroupRefs group_refs;
  new (self) PyPeriodicModelAverager(period, warmup_steps, group_refs.track(group_or_default(std::move(group))));
  self->group_refs = std::move(group_refs);
  if (period == 1) warn_of_period_one("period");
}

void construct_hierarchical(PyHierarchicalModelAverager* self, nb::handle dict, std::int64_t warmup_steps,
                            GroupPtr group) {
  std::vector<HierarchicalModelAverager::Level> levels;
  if (!dict.is_none()) {
    for (const nb::handle item : dict.attr("items")()) {
      levels.push_back({nb::cast<std::int64_t>(item[0]), nb::cast<int>(item[1])});
    }
  }
  GroupRefs group_refs;
  group = group_refs.track(group_or_default(std::move(group)));
  if (!levels.empty() && levels.back().period == 1) {
    warn_of_period_one("the maximum period in arg ``period_group_size_dict``");
  }
  without_gil([&] { new (self) PyHierarchicalModelAverager(levels, warmup_steps, group); });
  self->group_refs = std::move(group_refs);
}

nb::dict period_groups(const PyHierarchicalModelAverager& self) {
  nb::dict result;
  for (const auto& [period, group] : self.period_groups()) result[nb::int_(period)] = nb::cast(untracked(group));
  return result;
}

}  // namespace

void bind_model_averager(nb::module_& m) {
  using nb::arg;
  nb::class_<ModelAverager>(m, "ModelAverager", "Counts training steps and averages the parameters periodically.")
      .def("average_parameters", &average, arg("params"),
           nb::sig("def average_parameters(self, params: typing.Any) -> bool"),
           "Call once per step, after the optimizer, on all ranks, with arrays, a mapping to arrays, or param_groups. "
           "If "
           "an average is due, replaces the parameters by their mean over the ranks and returns True.")
      .def_prop_rw("step", &ModelAverager::step, &ModelAverager::set_step,
                   "The number of counted steps. Set it when resuming a run.")
      .def_prop_ro("warmup_steps", &ModelAverager::warmup_steps)
      .def_prop_ro("process_group", [](const ModelAverager& self) { return untracked(self.group()); });
  nb::class_<PyPeriodicModelAverager, ModelAverager>(m, "PeriodicModelAverager", slots<PeriodicModelAverager>(),
                                                     "Averages every `period` steps after the warm-up.")
      .def("__init__", &construct_periodic, arg("period"), arg("warmup_steps") = 0,
           arg("process_group").none() = nb::none())
      .def_prop_ro("period", &PeriodicModelAverager::period);
  nb::class_<PyHierarchicalModelAverager, ModelAverager>(m, "HierarchicalModelAverager",
                                                         slots<HierarchicalModelAverager>(),
                                                         "Averages over groups of several sizes, each with its period: "
                                                         "{2: 2, 8: 4} averages over 2 ranks every 2 steps and over 4 "
                                                         "ranks every 8 steps.")
      .def("__init__", &construct_hierarchical, arg("period_group_size_dict").none() = nb::none(),
           arg("warmup_steps") = 0, arg("process_group").none() = nb::none(),
           nb::sig("def __init__(self, period_group_size_dict: collections.abc.Mapping[int, int] | None = None, "
                   "warmup_steps: int = 0, process_group: ProcessGroup | None = None) -> None"))
      .def_prop_ro("period_process_group_dict", &period_groups,
                   nb::sig("def period_process_group_dict(self) -> dict[int, ProcessGroup]"));
  m.def(
      "local_group",
      [](GroupPtr group) {
        group = group_or_default(std::move(group));
        return without_gil([&] { return local_group(group); });
      },
      arg("group").none() = nb::none(), "Creates the group of the ranks on this host. Collective.");
}

}  // namespace hookline::python
