// Binds the debug wrappers of process groups, native or implemented in Python.
#include <optional>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/group/collective_checks.hpp>
#include <hookline/group/cross_check.hpp>
#include <hookline/group/flight_recorder.hpp>
#include <hookline/group/nan_checks.hpp>

#include "bindings.hpp"
#include "py_group.hpp"
#include "without_gil.hpp"

namespace hookline::python {
namespace {

using GroupPtr = std::shared_ptr<ProcessGroup>;

GroupPtr make_group_with_collective_checks(nb::handle group, std::shared_ptr<Store> store) {
  return make_wrapper_of(group,
                         [&](GroupPtr inner) { return with_collective_checks(std::move(inner), std::move(store)); });
}

GroupPtr make_group_with_nan_checks(nb::handle group) {
  return make_wrapper_of(group, [](GroupPtr inner) { return with_nan_checks(std::move(inner)); });
}

GroupPtr make_group_with_cross_check(nb::handle group, nb::handle other, double tolerance) {
  return NativeGroup::make(with_cross_check(borrowed_group(group), borrowed_group(other), {.tolerance = tolerance}),
                           {PyRef(nb::borrow(group)), PyRef(nb::borrow(other))});
}

GroupPtr make_group_with_flight_recorder(nb::handle group, std::size_t capacity,
                                         const std::optional<std::string>& directory,
                                         const std::optional<std::string>& name) {
  const FlightRecorderOptions options{
      .capacity = capacity, .directory = directory.value_or(""), .name = name.value_or("")};
  return make_wrapper_of(group, [&](GroupPtr inner) { return with_flight_recorder(std::move(inner), options); });
}

nb::object flight_records_as_dict(const ProcessGroup& group) {
  return nb::module_::import_("json").attr("loads")(flight_records(group));
}

std::string dump(const ProcessGroup& group, const std::optional<std::string>& path) {
  return without_gil([&] { return dump_flight_records(group, path.value_or("")); });
}

}  // namespace

void bind_decorators(nb::module_& m) {
  using nb::arg;
  m.def(
      "with_collective_checks", &make_group_with_collective_checks, arg("group"), arg("store"),
      nb::sig("def with_collective_checks(group: ProcessGroup, store: Store) -> ProcessGroup"),
      "Wraps `group`: collectives start only when all ranks have called the same one, with the same dtype, shapes and "
      "root; otherwise all ranks raise a Mismatch that lists all calls. All ranks share the store.");
  m.def(
      "with_nan_checks", &make_group_with_nan_checks, arg("group"),
      nb::sig("def with_nan_checks(group: ProcessGroup) -> ProcessGroup"),
      "Wraps `group`: before sending a NaN or an infinity, raises InvalidArgument, naming rank, operation, tensor and "
      "index, and aborts the group.");
  m.def(
      "with_cross_check", &make_group_with_cross_check, arg("group"), arg("other"), arg("tolerance") = 0.0,
      nb::sig("def with_cross_check(group: ProcessGroup, other: ProcessGroup, tolerance: float = 0.0) -> ProcessGroup"),
      "Runs every operation on two groups of the same ranks, and fails at the first element that differs by more than "
      "the relative tolerance; 0 requires bitwise equality.");
  m.def("with_flight_recorder", &make_group_with_flight_recorder, arg("group"), arg("capacity") = 1024,
        arg("directory") = nb::none(), arg("name") = nb::none(),
        nb::sig("def with_flight_recorder(group: ProcessGroup, capacity: int = 1024, directory: str | None = None, "
                "name: str | None = None) -> ProcessGroup"),
        "Wraps `group`: records its last operations, and dumps them as JSON on an error, on SIGUSR1 and by "
        "dump_flight_records(). `hookline debug DIR` reads the dumps of all ranks. The default directory is "
        "HOOKLINE_DEBUG_DIR, or hookline-debug.");
  m.def("flight_records", &flight_records_as_dict, arg("group"),
        nb::sig("def flight_records(group: ProcessGroup) -> dict[str, typing.Any]"),
        "Returns the records of a group with a flight recorder.");
  m.def("dump_flight_records", &dump, arg("group"), arg("path") = nb::none(),
        "Writes the records of a group with a flight recorder to a file and returns its path.");
}

}  // namespace hookline::python
