// Binds the names of the backends, and the memory that there is for them; groups are made by init_process_group.
#include <cstdint>
#include <optional>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/backend/make_backend.hpp>

#include "backend/shm/memory_limit.hpp"
#include "rooms.hpp"

namespace hookline::python {

void bind_backend(nb::module_& m) {
  m.def("backend_names", &backend_names,
        "The backends that init_process_group knows. One that is an engine of its own may have to be installed first: "
        "`hookline doctor` tries them all.");
  m.def(
      "available_bytes",
      [](const std::string& root) -> std::optional<std::uint64_t> {
        const std::uint64_t bytes = shm::available_bytes(root);
        return bytes == UINT64_MAX ? std::nullopt : std::optional(bytes);
      },
      nb::arg("root") = "",
      "The memory that shm may take, on the host and in the control groups, whose files are looked for below root; "
      "None "
      "where nothing is known.");
}

}  // namespace hookline::python
