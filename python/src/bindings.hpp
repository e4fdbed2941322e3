// The binding functions of all modules.
#pragma once

#include <nanobind/nanobind.h>

namespace hookline::python {

namespace nb = nanobind;

void bind_exit(nb::module_& m);
void bind_error(nb::module_& m);
void bind_kernel(nb::module_& m);
void bind_future(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_store(nb::module_& m);
void bind_codec(nb::module_& m);
void bind_backend(nb::module_& m);
void bind_group_options(nb::module_& m);
void bind_work(nb::module_& m);
void bind_group(nb::module_& m);
void bind_decorators(nb::module_& m);
void bind_bucket(nb::module_& m);
void bind_hook(nb::module_& m);
void bind_powersgd(nb::module_& m);
void bind_post_local_sgd(nb::module_& m);
void bind_optimizer(nb::module_& m);
void bind_model_averager(nb::module_& m);
void bind_reducer(nb::module_& m);
void bind_capsule(nb::module_& m);
/// Binds test helpers; empty if tests are not built.
void bind_probe(nb::module_& m);

}  // namespace hookline::python
