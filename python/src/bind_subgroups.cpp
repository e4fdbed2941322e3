// Binds subgroups and the coalescing of operations.
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/vector.h>

#include "bind_collectives.hpp"
#include "gil_release.hpp"
#include "py_group.hpp"
#include "timeout_arg.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

void throw_if_super_call(const ProcessGroup& group, const char* method) {
  if (const PyProcessGroup* const python = as_python_group(group)) python->throw_if_super_call(method);
}

void def_new_group(GroupClass& group, const char* name, const char* signature) {
  group.def(
      name,
      [name](ProcessGroup& g, const std::vector<int>& ranks, std::optional<TimeoutArg> timeout) {
        throw_if_super_call(g, name);
        return without_gil([&] {
          auto subgroup = g.new_group(ranks);
          if (subgroup && timeout) subgroup->set_timeout(*timeout);
          return subgroup;
        });
      },
      nb::arg("ranks"), nb::arg("timeout") = nb::none(), nb::sig(signature),
      "Creates a group of some of the ranks, in the given order; returns None on other ranks. Collective: all ranks of "
      "this group call it.");
}

// torch passes a device, which has no effect here.
void def_coalescing(GroupClass& group, const char* start, const char* end) {
  group
      .def(
          start,
          [start](ProcessGroup& g, nb::handle) {
            throw_if_super_call(g, start);
            without_gil([&] { g.start_coalescing(); });
          },
          nb::arg("device").none() = nb::none(),
          "Begins coalescing: subsequent operations share one work, until end_coalescing().")
      .def(
          end,
          [end](ProcessGroup& g, nb::handle) {
            throw_if_super_call(g, end);
            WorkObject result{nullptr, nb::find(g), nb::list(), {}, {}};
            result.work = without_gil([&] { return g.end_coalescing(); });
            return result;
          },
          nb::arg("device").none() = nb::none(),
          "Ends coalescing. Returns the work of all operations since start_coalescing(), done when all of them are.");
}

}  // namespace

void bind_subgroups(GroupClass& group) {
  def_new_group(group, "new_group",
                "def new_group(self, ranks: collections.abc.Sequence[int], timeout: float | datetime.timedelta | None "
                "= None) -> ProcessGroup | None");
  def_new_group(group, "split_group",
                "def split_group(self, ranks: collections.abc.Sequence[int], timeout: float | datetime.timedelta | "
                "None = None) -> ProcessGroup | None");
  group.def(
      "split",
      [](ProcessGroup& g, int color, int key) {
        return without_gil([&] {
          // The base implementation uses other operations, so overrides can call super().
          return as_python_group(g) ? g.ProcessGroup::split(color, key) : g.split(color, key);
        });
      },
      nb::arg("color"), nb::arg("key") = 0, nb::sig("def split(self, color: int, key: int = 0) -> ProcessGroup | None"),
      "Creates one group per color, with ranks ordered by key, then by rank; returns None for a negative color.");
  def_coalescing(group, "start_coalescing", "end_coalescing");
  def_coalescing(group, "_start_coalescing", "_end_coalescing");
}

}  // namespace hookline::python
