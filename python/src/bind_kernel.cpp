// Binds the compiler and the SIMD targets of the library, for `hookline doctor`.
#include <string>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/kernel/cpu_targets.hpp>

#include "bindings.hpp"

namespace hookline::python {

void bind_kernel(nb::module_& m) {
#if defined(__clang__)
  std::string compiler = "clang " __clang_version__;
#else
  std::string compiler = "gcc " __VERSION__;
#endif
  compiler += ", C++" + std::to_string(__cplusplus / 100 % 100);
  compiler += _GLIBCXX_USE_CXX11_ABI ? ", libstdc++ ABI cxx11" : ", libstdc++ ABI before cxx11";
  m.attr("compiler") = compiler;
  m.def("cpu_targets", &cpu_targets, "Returns the SIMD targets that the kernels support on this processor, best last.");
}

}  // namespace hookline::python
