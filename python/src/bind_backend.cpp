// Binds the backend names and the memory limit of shm. bind_group.cpp binds init_process_group.
#include <cstdint>
#include <optional>
#include <string>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/backend/make_backend.hpp>

#include "backend/shm/memory_limit.hpp"
#include "bindings.hpp"

namespace hookline::python {

void bind_backend(nb::module_& m) {
  m.def("backend_names", &backend_names,
        "Returns the backends that init_process_group accepts. Transports may have to be installed first: `hookline "
        "doctor` tests all of them.");
  m.def(
      "available_bytes",
      [](const std::string& root) -> std::optional<std::uint64_t> {
        const std::uint64_t bytes = shm::available_bytes(root);
        return bytes == UINT64_MAX ? std::nullopt : std::optional(bytes);
      },
      nb::arg("root") = "",
      "Returns the memory in bytes that shm can use, limited by the host and the control groups; None if unknown. root "
      "replaces / for /proc and /sys.");
}

}  // namespace hookline::python
