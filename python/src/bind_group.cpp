// Binds ProcessGroup: the group itself, and how it is made. Its collectives are in bind_collectives.cpp.
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
#include "default_group.hpp"
#include "dtype_arg.hpp"
#include "gc_slots.hpp"
#include "natively.hpp"
#include "py_group.hpp"
#include "py_process_group.hpp"
#include "rooms.hpp"
#include "shape_arg.hpp"
#include "timeout_arg.hpp"
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

/// The group that init_process_group made last, while it lives: what is read from a pickle belongs to it.
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
  auto group = releases_gil([&] { return NativeGroup::make(init_process_group(options)); });
  default_group() = group;
  return group;
}

std::vector<GroupPtr> make_thread_groups(int size, std::optional<TimeoutArg> timeout) {
  const Milliseconds limit = timeout ? *timeout : kDefaultTimeout;
  return releases_gil([&] {
    std::vector<GroupPtr> groups;
    for (auto& backend : make_threads_backends(size)) groups.push_back(NativeGroup::make(make_group(backend, limit)));
    return groups;
  });
}

/// What goes by two names, as the method `name` gives it. It is called for a class that has neither, and for one that
/// has it and has called super(): these get what is `own` to the base.
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
  releases_gil([&] { g.wait_for_hooks(timeout); });
}

void bind_completion_hooks(GroupClass& group) {
  const auto def = [&](const char* name, const char* signature) {
    group.def(name, &register_hook, nb::arg("hook"), nb::sig(signature),
              "Calls hook(info) with a WorkInfo after every operation that starts from now on, on the group's callback "
              "thread, in order. What it raises fails the wait() of that operation, or wait_for_hooks(). Of a group "
              "written in Python, operations that native code starts on it count.");
  };
  def("register_on_completion_hook",
      "def register_on_completion_hook(self, hook: typing.Callable[[WorkInfo], object]) -> None");
  def("_register_on_completion_hook",
      "def _register_on_completion_hook(self, hook: typing.Callable[[WorkInfo], object]) -> None");
  for (const char* name : {"wait_for_hooks", "_wait_for_pending_works"}) {
    group.def(name, &wait_for_hooks, nb::arg("timeout") = nb::none(),
              "Waits for every operation that was started, and for its hooks; raises what a hook raised that no wait() "
              "has.");
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
           "The number of this rank in the group, from 0 on.")
      .def("getRank", by_name_or_alias("getRank", "rank", base_rank, &ProcessGroup::rank), "PyTorch's name for rank().")
      .def("size", by_name_or_alias("size", "getSize", base_size, &ProcessGroup::size), "How many ranks the group has.")
      .def("getSize", by_name_or_alias("getSize", "size", base_size, &ProcessGroup::size), "PyTorch's name for size().")
      .def("backend_name", by_name_or_alias("backend_name", "getBackendName", class_name, backend_name),
           "What carries its operations, such as 'shm'; of a group written in Python the name of its class.")
      .def("getBackendName", by_name_or_alias("getBackendName", "backend_name", class_name, backend_name),
           "PyTorch's name for backend_name().")
      .def("name", by_name_or_alias("name", "group_name", backend_name, group_name),
           "What the group is called; the name of its backend where nobody has named it.")
      .def_prop_ro("group_name", by_name_or_alias("group_name", "name", backend_name, group_name))
      .def("description", by_name_or_alias("description", "group_desc", base_description, description),
           "Backend, rank and size in words.")
      .def_prop_ro("group_desc", by_name_or_alias("group_desc", "description", base_description, description))
      .def_prop_ro("capabilities", &ProcessGroup::capabilities)
      .def_prop_ro("sequence_number",
                   by_name_or_alias("sequence_number", "_get_sequence_number_for_group", base_count, count),
                   "How many operations were started on this rank.")
      .def("_get_sequence_number_for_group",
           by_name_or_alias("_get_sequence_number_for_group", "sequence_number", base_count, count))
      .def(
          "_set_sequence_number_for_group", [](const ProcessGroup&) {},
          "Does nothing: every group counts from 1 on all ranks.")
      .def_prop_ro(
          "timeout",
          [](const ProcessGroup& g) { return as_python_group(g) ? as_python_group(g)->base_timeout() : g.timeout(); },
          "How long an operation may take that is given no time.")
      .def(
          "set_timeout",
          [](ProcessGroup& g, TimeoutArg timeout) {
            if (PyProcessGroup* const python = as_python_group(g)) python->set_base_timeout(timeout);
            else g.set_timeout(timeout);
          },
          arg("timeout"), "How long an operation may take from now on that is given no time.")
      .def(
          "abort",
          [](ProcessGroup& g, const std::string& cause) {
            if (!as_python_group(g)) releases_gil([&] { g.abort(cause); });
          },
          arg("cause") = "abort() was called",
          "Fails everything under way and to come on every rank, with Aborted naming this one and the cause. Does "
          "nothing for a class that does not define it.")
      .def(
          "shutdown",
          [](ProcessGroup& g) {
            if (!as_python_group(g)) releases_gil([&] { g.shutdown(); });
          },
          "Leaves the group: what was sent goes out first, nobody's answer is waited for.")
      .def(
          "empty",
          [](ProcessGroup& g, const Shape& shape, const DTypeArg& dtype) {
            const Dims dims = dims_of(shape);
            const DType type = dtype.value();
            return releases_gil([&] { return g.empty(dims, type); });
          },
          arg("shape"), arg("dtype") = "float32",
          "A tensor in memory that the group's collectives work on in place; numpy.asarray of it takes no copy.")
      .def("__repr__", [](const ProcessGroup& g) {
        return "<hookline.ProcessGroup " + g.backend_name() + ", rank " + std::to_string(g.rank()) + " of " +
               std::to_string(g.size()) + ">";
      });
}

}  // namespace

GroupPtr group_or_default(GroupPtr group) {
  if (!group) group = default_group().lock();
  if (group) return group;
  throw InvalidArgument("there is no default group: call init_process_group() first, and keep what it returns");
}

void bind_group(nb::module_& m) {
  using nb::arg;
  nb::class_<Capabilities>(m, "Capabilities", "What a group's backend can do.")
      .def_ro("lanes", &Capabilities::lanes, "How many sequences of collectives may be under way side by side.")
      .def_ro("shared_buffers", &Capabilities::shared_buffers, "Whether empty() gives memory that is used in place.");

  nb::class_<ProcessGroup, PyProcessGroup> group(
      m, "ProcessGroup", nb::type_slots(gc_slots<ProcessGroup, traverse, clear>), nb::is_weak_referenceable(),
      "Ranks that communicate. Every rank makes the same calls in the same order. Where a list of arrays is expected, "
      "a single one is taken, too. Arrays must stay untouched until the work is done. A class may derive from it and "
      "define any of the operations: native code then calls those, as torch.distributed would.");
  group.def(nb::init<int, int>(), arg("rank"), arg("size"), "For classes that derive from it.");
  bind_lifecycle(group);
  bind_completion_hooks(group);
  bind_collectives(group);
  bind_subgroups(group);

  m.def(
      "is_initialized", [](nb::handle object) { return nb::inst_check(object) && nb::inst_ready(object); },
      arg("object"), "Whether it is an object of this module whose __init__ has run.");
  m.def(
      "default_group", [] { return group_or_default(nullptr); },
      "The group that init_process_group made last, while it lives.");
  m.def("init_process_group", &init, arg("backend").none() = nb::none(), arg("init_method") = "env://",
        arg("rank") = nb::none(), arg("world_size") = nb::none(), arg("timeout") = nb::none(),
        arg("store") = nb::none(), arg("backend_options") = std::map<std::string, std::string>(),
        "Meets the other processes of the job and returns the group of all of them. Without a backend it is shm on one "
        "host, and layered beyond: over mpi under an MPI launcher, else over gloo. The timeout, 30 minutes where not "
        "given, is that of meeting and of every operation that has none of its own. What options there are depends on "
        "the backend: shm takes \"waiting\", gloo \"interface\" and \"address\", mpi \"communicator\", layered "
        "\"engine\" and those of that engine.");
  m.def("make_thread_groups", &make_thread_groups, arg("size"), arg("timeout") = nb::none(),
        "The groups of a new set of ranks that are threads of this process, in rank order, each for one thread.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function([] {
    shutdown_groups();
    stop_deadline_timer();
  }));
}

}  // namespace hookline::python
