// Stands in for the tests' probe where the tests are not built.
#include "../bindings.hpp"

namespace hookline::python {

void bind_probe(nb::module_&) {}

}  // namespace hookline::python
