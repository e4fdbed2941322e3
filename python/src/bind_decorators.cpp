// Binds the groups that watch other groups, be those native or Python classes.
#include <optional>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/group/checked.hpp>
#include <hookline/group/compared.hpp>
#include <hookline/group/nan_checked.hpp>
#include <hookline/group/recorded.hpp>

#include "natively.hpp"
#include "py_group.hpp"
#include "rooms.hpp"

namespace hookline::python {
namespace {

using GroupPtr = std::shared_ptr<ProcessGroup>;

GroupPtr bind_checked(nb::handle group, std::shared_ptr<Store> store) {
  return make_around(group, [&](GroupPtr inner) { return checked(std::move(inner), std::move(store)); });
}

GroupPtr bind_nan_checked(nb::handle group) {
  return make_around(group, [](GroupPtr inner) { return nan_checked(std::move(inner)); });
}

GroupPtr bind_compared(nb::handle group, nb::handle other, double tolerance) {
  return NativeGroup::make(compared(borrowed_group(group), borrowed_group(other), {.tolerance = tolerance}),
                           {PyRef(nb::borrow(group)), PyRef(nb::borrow(other))});
}

GroupPtr bind_recorded(nb::handle group, std::size_t capacity, const std::optional<std::string>& directory,
                       const std::optional<std::string>& name) {
  const RecordOptions options{.capacity = capacity, .directory = directory.value_or(""), .name = name.value_or("")};
  return make_around(group, [&](GroupPtr inner) { return recorded(std::move(inner), options); });
}

nb::object records_as_dict(const ProcessGroup& group) {
  return nb::module_::import_("json").attr("loads")(records(group));
}

std::string dump(const ProcessGroup& group, const std::optional<std::string>& path) {
  return natively([&] { return dump_records(group, path.value_or("")); });
}

}  // namespace

void bind_decorators(nb::module_& m) {
  using nb::arg;
  m.def("checked", &bind_checked, arg("group"), arg("store"),
        nb::sig("def checked(group: ProcessGroup, store: Store) -> ProcessGroup"),
        "A group around `group` whose collectives start only when all ranks have called the same one, with the same "
        "dtype, shapes and root; else every rank gets a Mismatch that lists all calls. All ranks share the store.");
  m.def("nan_checked", &bind_nan_checked, arg("group"), nb::sig("def nan_checked(group: ProcessGroup) -> ProcessGroup"),
        "A group around `group` that raises InvalidArgument, naming rank, operation, tensor and index, before it would "
        "send a NaN or an infinity, and aborts the group.");
  m.def("compared", &bind_compared, arg("group"), arg("other"), arg("tolerance") = 0.0,
        nb::sig("def compared(group: ProcessGroup, other: ProcessGroup, tolerance: float = 0.0) -> ProcessGroup"),
        "A group that runs every operation on two groups of the same ranks, and fails at the first element that "
        "differs by more than the tolerance, a part of the larger magnitude.");
  m.def("recorded", &bind_recorded, arg("group"), arg("capacity") = 1024, arg("directory") = nb::none(),
        arg("name") = nb::none(),
        nb::sig("def recorded(group: ProcessGroup, capacity: int = 1024, directory: str | None = None, name: str | "
                "None = None) -> ProcessGroup"),
        "A group around `group` that remembers its last operations and dumps them as JSON at an error, at SIGUSR1 and "
        "by dump_records(); `hookline debug DIR` reads the dumps of all ranks. The directory is HOOKLINE_DEBUG_DIR, or "
        "hookline-debug, where not given.");
  m.def("records", &records_as_dict, arg("group"), nb::sig("def records(group: ProcessGroup) -> dict[str, typing.Any]"),
        "What a recorded group remembers.");
  m.def("dump_records", &dump, arg("group"), arg("path") = nb::none(),
        "Writes what a recorded group remembers to a file and returns its path.");
}

}  // namespace hookline::python
