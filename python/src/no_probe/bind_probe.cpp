// Replaces the test probe if tests are not built.
#include "../bindings.hpp"

namespace hookline::python {

void bind_probe(nb::module_&) {}

}  // namespace hookline::python
