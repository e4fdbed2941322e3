// The extension module hookline._core: binds all modules, in dependency order.
#include <cstdlib>

#include "bindings.hpp"

#include <hookline/version.hpp>

NB_MODULE(_core, m) {
  namespace py = hookline::python;
  m.attr("version") = HOOKLINE_VERSION;
  // nanobind's leak warnings are only for developers of this library.
  nanobind::set_leak_warnings(std::getenv("HOOKLINE_TEST_LEAKS") != nullptr);
  py::bind_exit(m);
  py::bind_error(m);
  py::bind_kernel(m);
  py::bind_future(m);
  py::bind_tensor(m);
  py::bind_store(m);
  py::bind_codec(m);
  py::bind_backend(m);
  py::bind_group_options(m);
  py::bind_work(m);
  py::bind_group(m);
  py::bind_decorators(m);
  py::bind_bucket(m);
  py::bind_hook(m);
  py::bind_powersgd(m);
  py::bind_post_local_sgd(m);
  py::bind_optimizer(m);
  py::bind_model_averager(m);
  py::bind_reducer(m);
  py::bind_capsule(m);
  py::bind_probe(m);
}
