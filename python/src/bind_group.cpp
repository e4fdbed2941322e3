// Binds ProcessGroup and init_process_group. bind_collectives.cpp binds the collectives.
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/backend/threads.hpp>
#include <hookline/group/init.hpp>

#include "bind_collectives.hpp"
#include "bindings.hpp"
#include "default_group.hpp"
#include "dtype_arg.hpp"
#include "gc_slots.hpp"
#include "py_group.hpp"
#include "py_process_group.hpp"
#include "shape_arg.hpp"
#include "timeout_arg.hpp"
#include "without_gil.hpp"
#include "work_future.hpp"

namespace hookline::python {
namespace {

using GroupPtr = std::shared_ptr<ProcessGroup>;

int traverse(ProcessGroup& group, visitproc visit, void* arg) {
  if (auto* const native = dynamic_cast<NativeGroup*>(&group)) return native->traverse(visit, arg);
  if (auto* const python = as_python_group(group)) {
    if (const int stopped = python->ref_counter()->traverse(visit, arg)) return stopped;
    return python->hook_list().traverse(visit, arg);
  }
  return 0;
}

void clear(ProcessGroup& group) {
  if (auto* const native = dynamic_cast<NativeGroup*>(&group)) native->clear();
  if (auto* const python = as_python_group(group)) python->hook_list().clear();
}

/// The last group from init_process_group, while it lives. Unpickled objects use it.
std::weak_ptr<ProcessGroup>& default_group() {
  static std::weak_ptr<ProcessGroup> group;
  return group;
}

GroupPtr init(const std::optional<std::string>& backend, const std::string& init_method, std::optional<int> rank,
              std::optional<int> world_size, std::optional<TimeoutArg> timeout, std::shared_ptr<Store> store,
              const std::map<std::string, std::string>& backend_options) {
  InitOptions options;
  if (backend) options.backend = *backend;
  options.init_method = init_method;
  options.rank = rank;
  options.world_size = world_size;
  if (timeout) options.timeout = *timeout;
  options.store = std::move(store);
  options.backend_options = backend_options;
  auto group = without_gil([&] { return NativeGroup::make(init_process_group(options)); });
  default_group() = group;
  return group;
}

std::vector<GroupPtr> make_thread_groups(int size, std::optional<TimeoutArg> timeout) {
  const Milliseconds limit = timeout ? *timeout : kDefaultTimeout;
  return without_gil([&] {
    std::vector<GroupPtr> groups;
    for (auto& backend : make_threads_backends(size)) groups.push_back(NativeGroup::make(make_group(backend, limit)));
    return groups;
  });
}

/// Returns the implementation of a base method that has an alias. Python reaches it if a class overrides neither name,
/// or if its override calls super(): then `base_method` gives the result. If only the alias is overridden, calls
/// `method`.
template <class Own, class Asked>
auto by_name_or_alias(const char* name, const char* alias, Own base_method, Asked method) {
  return [=](const ProcessGroup& g) {
    const PyProcessGroup* const python = as_python_group(g);
    const bool is_base = python && (python->overrides(name) || !python->overrides(alias));
    return is_base ? std::invoke(base_method, *python) : std::invoke(method, g);
  };
}

void register_hook(ProcessGroup& g, nb::callable hook) {
  PyProcessGroup* const python = as_python_group(g);
  CompletionHookList& list = python ? python->hook_list() : dynamic_cast<NativeGroup&>(g).hook_list();
  g.register_on_completion_hook(list.add(std::move(hook)), callback_executor_of(g));
}

void wait_for_hooks(ProcessGroup& g, std::optional<TimeoutArg> timeout) {
  without_gil([&] { g.wait_for_hooks(timeout); });
}

void bind_completion_hooks(GroupClass& group) {
  const auto def = [&](const char* name, const char* signature) {
    group.def(name, &register_hook, nb::arg("hook"), nb::sig(signature),
              "Calls hook(info) with a WorkInfo after every subsequent operation, on the group's callback thread, in "
              "completion order. An exception fails the wait() of that operation, or wait_for_hooks(). For groups "
              "written in Python, only operations started by native code count.");
  };
  def("register_on_completion_hook",
      "def register_on_completion_hook(self, hook: typing.Callable[[WorkInfo], object]) -> None");
  def("_register_on_completion_hook",
      "def _register_on_completion_hook(self, hook: typing.Callable[[WorkInfo], object]) -> None");
  for (const char* name : {"wait_for_hooks", "_wait_for_pending_works"}) {
    group.def(
        name, &wait_for_hooks, nb::arg("timeout") = nb::none(),
        "Waits for all started operations and their hooks. Raises exceptions of hooks that no wait() has raised.");
  }
}

void bind_lifecycle(GroupClass& group) {
  using nb::arg;
  const auto class_name = &PyProcessGroup::class_name;
  const auto backend_name = &ProcessGroup::backend_name;
  const auto group_name = &ProcessGroup::group_name;
  const auto base_description = [](const PyProcessGroup& g) { return g.ProcessGroup::description(); };
  const auto description = &ProcessGroup::description;
  const auto base_count = &PyProcessGroup::base_sequence_number;
  const auto count = &ProcessGroup::sequence_number;
  const auto base_rank = &PyProcessGroup::base_rank;
  const auto base_size = &PyProcessGroup::base_size;
  group
      .def("rank", by_name_or_alias("rank", "getRank", base_rank, &ProcessGroup::rank),
           "Returns the rank of this process in the group.")
      .def("getRank", by_name_or_alias("getRank", "rank", base_rank, &ProcessGroup::rank), "PyTorch's name for rank().")
      .def("size", by_name_or_alias("size", "getSize", base_size, &ProcessGroup::size), "Returns the number of ranks.")
      .def("getSize", by_name_or_alias("getSize", "size", base_size, &ProcessGroup::size), "PyTorch's name for size().")
      .def("backend_name", by_name_or_alias("backend_name", "getBackendName", class_name, backend_name),
           "Returns the name of the backend, such as 'shm'; for a group written in Python, the name of its class.")
      .def("getBackendName", by_name_or_alias("getBackendName", "backend_name", class_name, backend_name),
           "PyTorch's name for backend_name().")
      .def("name", by_name_or_alias("name", "group_name", backend_name, group_name),
           "Returns the name of the group; by default the name of its backend.")
      .def_prop_ro("group_name", by_name_or_alias("group_name", "name", backend_name, group_name))
      .def("description", by_name_or_alias("description", "group_desc", base_description, description),
           "Returns a description with backend, rank and size.")
      .def_prop_ro("group_desc", by_name_or_alias("group_desc", "description", base_description, description))
      .def_prop_ro("capabilities", &ProcessGroup::capabilities)
      .def_prop_ro("sequence_number",
                   by_name_or_alias("sequence_number", "_get_sequence_number_for_group", base_count, count),
                   "The number of operations started on this rank.")
      .def("_get_sequence_number_for_group",
           by_name_or_alias("_get_sequence_number_for_group", "sequence_number", base_count, count))
      .def(
          "_set_sequence_number_for_group", [](const ProcessGroup&) {},
          "Does nothing: on all ranks, groups count from 1.")
      .def_prop_ro(
          "timeout",
          [](const ProcessGroup& g) { return as_python_group(g) ? as_python_group(g)->base_timeout() : g.timeout(); },
          "The default timeout of operations.")
      .def(
          "set_timeout",
          [](ProcessGroup& g, TimeoutArg timeout) {
            if (PyProcessGroup* const python = as_python_group(g)) python->set_base_timeout(timeout);
            else g.set_timeout(timeout);
          },
          arg("timeout"), "Sets the default timeout of subsequent operations.")
      .def(
          "abort",
          [](ProcessGroup& g, const std::string& cause) {
            if (!as_python_group(g)) without_gil([&] { g.abort(cause); });
          },
          arg("cause") = "abort() was called",
          "Fails all pending and subsequent operations on all ranks with Aborted, which names this rank and the cause. "
          "Does nothing for a group implemented in Python that does not override it.")
      .def(
          "shutdown",
          [](ProcessGroup& g) {
            if (!as_python_group(g)) without_gil([&] { g.shutdown(); });
          },
          "Leaves the group. Flushes sent data first, but does not wait for other ranks.")
      .def(
          "empty",
          [](ProcessGroup& g, const Shape& shape, const DTypeArg& dtype) {
            const Dims dims = dims_of(shape);
            const DType type = dtype.value();
            return without_gil([&] { return g.empty(dims, type); });
          },
          arg("shape"), arg("dtype") = "float32",
          "Allocates a tensor in memory that the group's collectives use in place. numpy.asarray() of it does not "
          "copy.")
      .def("__repr__", [](const ProcessGroup& g) {
        return "<hookline.ProcessGroup " + g.backend_name() + ", rank " + std::to_string(g.rank()) + " of " +
               std::to_string(g.size()) + ">";
      });
}

}  // namespace

GroupPtr group_or_default(GroupPtr group) {
  if (!group) group = default_group().lock();
  if (group) return group;
  throw InvalidArgument("there is no default group. Call init_process_group() first, and keep its result.");
}

void bind_group(nb::module_& m) {
  using nb::arg;
  nb::class_<Capabilities>(m, "Capabilities", "The capabilities of a group's backend.")
      .def_ro("lanes", &Capabilities::lanes, "The number of lanes: sequences of collectives that run concurrently.")
      .def_ro("shared_buffers", &Capabilities::shared_buffers, "True if collectives use memory from empty() in place.");

  nb::class_<ProcessGroup, PyProcessGroup> group(
      m, "ProcessGroup", nb::type_slots(gc_slots<ProcessGroup, traverse, clear>), nb::is_weak_referenceable(),
      "A group of ranks that communicate. All ranks make the same calls in the same order. Methods that take a list of "
      "arrays also accept a single array. Arrays must not be modified until the work is done. A derived class can "
      "override any operation; native code then calls the override, as torch.distributed does.");
  group.def(nb::init<int, int>(), arg("rank"), arg("size"), "For derived classes.");
  bind_lifecycle(group);
  bind_completion_hooks(group);
  bind_collectives(group);
  bind_subgroups(group);

  m.def(
      "is_initialized", [](nb::handle object) { return nb::inst_check(object) && nb::inst_ready(object); },
      arg("object"), "True for an object of this module whose __init__ has run.");
  m.def(
      "default_group", [] { return group_or_default(nullptr); },
      "Returns the last group from init_process_group, while it lives.");
  m.def("init_process_group", &init, arg("backend").none() = nb::none(), arg("init_method") = "env://",
        arg("rank") = nb::none(), arg("world_size") = nb::none(), arg("timeout") = nb::none(),
        arg("store") = nb::none(), arg("backend_options") = std::map<std::string, std::string>(),
        "Runs the rendezvous of all processes of the job and returns their group. The default backend is shm on one "
        "host, and hierarchical on several hosts, with the transport mpi under an MPI launcher and gloo otherwise. The "
        "timeout, by default 30 minutes, limits the rendezvous and is the default of all operations. backend_options: "
        "shm takes \"wait_policy\", gloo \"interface\" and \"address\", mpi \"communicator\", hierarchical "
        "\"transport\" and the options of that transport.");
  m.def("make_thread_groups", &make_thread_groups, arg("size"), arg("timeout") = nb::none(),
        "Creates a group of ranks that are threads of this process. Returns one ProcessGroup per rank, in rank order.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    shutdown_groups();
    stop_deadline_timer();
  }));
}

}  // namespace hookline::python
