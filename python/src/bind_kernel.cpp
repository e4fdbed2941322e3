// Binds what the library was built with and what it uses of this processor, for `hookline doctor`.
#include <string>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/kernel/cpu_targets.hpp>

#include "rooms.hpp"

namespace hookline::python {

void bind_kernel(nb::module_& m) {
#if defined(__clang__)
  const std::string compiler = "clang " __clang_version__;
#else
  const std::string compiler = "gcc " __VERSION__;
#endif
  m.attr("compiler") = compiler + ", C++" + std::to_string(__cplusplus / 100 % 100) + ", libstdc++ ABI " +
                       (_GLIBCXX_USE_CXX11_ABI ? "cxx11" : "before cxx11");
  m.def("cpu_targets", &cpu_targets, "The instruction sets that the loops can use on this processor, best last.");
}

}  // namespace hookline::python
