// Optimizer steps by Python callables, on the callback thread with the GIL.
#include "py_optimizer.hpp"

#include <string>
#include <utility>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>
#include <hookline/optimizer/overlap.hpp>

#include "gil_release.hpp"
#include "py_error.hpp"
#include "py_hook.hpp"

namespace hookline::python {
namespace {

void step_bucket(const PyRef& stepper, bool by_parameter, const GradBucket& bucket, bool for_torch) {
  call_python("updating the parameters of a bucket", [&] {
    const PyGradBucket views{bucket, nb::object(), for_torch};
    if (!by_parameter) {
      stepper.object()(nb::cast(views));
      return;
    }
    const std::vector<Tensor> gradients = bucket.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      stepper.object().attr("step_param")(views.array_of(bucket.parameters()[i]), views.array_of(gradients[i]));
    }
  });
}

BucketStep make_bucket_step(PyRef stepper, bool by_parameter, bool for_torch) {
  return [stepper = std::move(stepper), by_parameter, for_torch](const GradBucket& bucket) {
    Promise<void> promise;
    Future<void> future = promise.get_future();
    const auto executor = callback_executor();
    if (!executor) throw Aborted("updating the parameters of a bucket: Python is finalizing");
    executor->post([stepper, by_parameter, bucket, for_torch, promise = std::move(promise)]() mutable {
      promise.set_from([&] { step_bucket(stepper, by_parameter, bucket, for_torch); });
    });
    return future;
  };
}

/// Returns a hook that is destroyed without the GIL. Its destructor joins the overlap thread, which needs the GIL to
/// exit if it has run a Python hook.
HookPtr hook_released_without_gil(HookPtr hook) {
  CommHookInterface* const pointer = hook.get();
  return {pointer, [hook = std::move(hook)](CommHookInterface*) mutable {
            std::optional<GilRelease> released;
            if (holds_gil()) released.emplace();
            hook.reset();
          }};
}

}  // namespace

PyRef make_stepper(nb::object optimizer) {
  if (optimizer.is_none()) return {};
  if (PyUnicode_Check(optimizer.ptr())) optimizer = nb::cast(make_optimizer(nb::str(optimizer).c_str()));
  return PyRef(std::move(optimizer));
}

HookPtr with_overlapped_steps(HookPtr hook, const PyRef& stepper, std::optional<double> clip_norm, bool for_torch) {
  const OverlapOptions options{.clip_norm = clip_norm};
  const nb::handle optimizer = stepper.get();
  if (!stepper) {
    if (clip_norm) throw InvalidArgument("clip_norm requires an optimizer");
    return hook;
  }
  if (nb::isinstance<Optimizer>(optimizer)) {
    return hook_released_without_gil(overlap(std::move(hook), nb::cast<OptimizerPtr>(optimizer), options));
  }
  const bool by_parameter = nb::hasattr(optimizer, "step_param");
  if (!by_parameter && !PyCallable_Check(optimizer.ptr())) {
    throw nb::type_error(("optimizer: expected a hookline.Optimizer, an optimizer spec, an object with "
                          "step_param(param, grad), or a function of a bucket, got " +
                          std::string(nb::repr(optimizer).c_str()))
                             .c_str());
  }
  const auto name = nb::cast<std::string>(nb::module_::import_("hookline._names").attr("name_of")(optimizer));
  return overlap(std::move(hook), make_bucket_step(stepper, by_parameter, for_torch), name, options);
}

}  // namespace hookline::python
