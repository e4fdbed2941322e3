// Binds the names of the backends; groups are made by init_process_group.
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/backend/make_backend.hpp>

#include "rooms.hpp"

namespace hookline::python {

void bind_backend(nb::module_& m) {
  m.def("backend_names", &backend_names,
        "The backends that init_process_group knows. One that is an engine of its own may have to be installed first: "
        "`hookline doctor` tries them all.");
}

}  // namespace hookline::python
