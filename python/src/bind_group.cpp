// Binds ProcessGroup: the group itself, and how it is made. Its collectives are in bind_collectives.cpp.
#include <optional>
#include <string>
#include <vector>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/backend/threads.hpp>
#include <hookline/group/init.hpp>

#include "bind_collectives.hpp"
#include "dtype_arg.hpp"
#include "natively.hpp"
#include "py_group.hpp"
#include "rooms.hpp"
#include "shape_arg.hpp"
#include "timeout_caster.hpp"

namespace hookline::python {
namespace {

using GroupPtr = std::shared_ptr<ProcessGroup>;

GroupPtr init(const std::optional<std::string>& backend, const std::string& init_method, std::optional<int> rank,
              std::optional<int> world_size, std::optional<TimeoutArg> timeout, std::shared_ptr<Store> store) {
  InitOptions options;
  if (backend) options.backend = *backend;
  options.init_method = init_method;
  options.rank = rank;
  options.world_size = world_size;
  if (timeout) options.timeout = timeout->value();
  options.store = std::move(store);
  return natively([&] { return NativeGroup::make(init_process_group(options)); });
}

std::vector<GroupPtr> threads_groups(int size, std::optional<TimeoutArg> timeout) {
  const Milliseconds limit = timeout ? timeout->value() : kDefaultTimeout;
  return natively([&] {
    std::vector<GroupPtr> groups;
    for (auto& backend : make_threads_backends(size)) groups.push_back(NativeGroup::make(make_group(backend, limit)));
    return groups;
  });
}

void bind_life(nb::class_<ProcessGroup>& group) {
  using nb::arg;
  const auto backend_name = [](const ProcessGroup& g) { return g.backend_name(); };
  group.def("rank", &ProcessGroup::rank)
      .def("size", &ProcessGroup::size)
      .def("backend_name", backend_name)
      .def("getBackendName", backend_name)
      .def("name", backend_name)
      .def_prop_ro("capabilities", &ProcessGroup::capabilities)
      .def_prop_ro("sequence_number", &ProcessGroup::sequence_number, "How many operations were started on this rank.")
      .def_prop_ro("timeout", &ProcessGroup::timeout, "How long an operation may take that is given no time.")
      .def(
          "set_timeout", [](ProcessGroup& g, TimeoutArg timeout) { g.set_timeout(timeout.value()); }, arg("timeout"))
      .def(
          "abort", [](ProcessGroup& g, const std::string& cause) { natively([&] { g.abort(cause); }); },
          arg("cause") = "abort() was called",
          "Fails everything under way and to come on every rank, with Aborted naming this one and the cause.")
      .def(
          "shutdown", [](ProcessGroup& g) { natively([&] { g.shutdown(); }); },
          "Leaves the group without waiting for a peer.")
      .def(
          "empty",
          [](ProcessGroup& g, const Shape& shape, const DTypeArg& dtype) {
            const Dims dims = dims_of(shape);
            const DType type = dtype.value();
            return natively([&] { return g.empty(dims, type); });
          },
          arg("shape"), arg("dtype") = "float32",
          "A tensor in memory that the group's collectives work on in place; numpy.asarray of it takes no copy.")
      .def(
          "new_group",
          [](ProcessGroup& g, const std::vector<int>& ranks) { return natively([&] { return g.new_group(ranks); }); },
          arg("ranks"), nb::sig("def new_group(self, ranks: collections.abc.Sequence[int]) -> ProcessGroup | None"),
          "A group of some of the ranks, in the order given; None on a rank that is not among them. Every rank of this "
          "group calls it.")
      .def(
          "split", [](ProcessGroup& g, int color, int key) { return natively([&] { return g.split(color, key); }); },
          arg("color"), arg("key") = 0, nb::sig("def split(self, color: int, key: int = 0) -> ProcessGroup | None"),
          "Groups of the ranks that passed the same color, ordered by key, then rank; None for a negative color.")
      .def("__repr__", [](const ProcessGroup& g) {
        return "<hookline.ProcessGroup " + g.backend_name() + ", rank " + std::to_string(g.rank()) + " of " +
               std::to_string(g.size()) + ">";
      });
}

}  // namespace

void bind_group(nb::module_& m) {
  using nb::arg;
  nb::class_<Capabilities>(m, "Capabilities", "What a group's backend can do.")
      .def_ro("lanes", &Capabilities::lanes, "How many sequences of collectives may be under way side by side.")
      .def_ro("shared_buffers", &Capabilities::shared_buffers, "Whether empty() gives memory that is used in place.")
      .def_ro("recv_anysource", &Capabilities::recv_anysource);

  nb::class_<ProcessGroup> group(
      m, "ProcessGroup", nb::is_weak_referenceable(),
      "Ranks that communicate. Every rank makes the same calls in the same order. Where a list of arrays is expected, "
      "a single one is taken, too. Arrays must stay untouched until the work is done.");
  bind_life(group);
  bind_collectives(group);

  m.def("init_process_group", &init, arg("backend").none() = "shm", arg("init_method") = "env://",
        arg("rank") = nb::none(), arg("world_size") = nb::none(), arg("timeout") = nb::none(),
        arg("store") = nb::none(),
        "Meets the other processes of the job and returns the group of all of them. The timeout, 30 minutes where not "
        "given, is that of meeting and of every operation that has none of its own.");
  m.def("threads_groups", &threads_groups, arg("size"), arg("timeout") = nb::none(),
        "The groups of a new set of ranks that are threads of this process, in rank order, each for one thread.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&end_groups));
}

}  // namespace hookline::python
