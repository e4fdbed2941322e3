// The extension module hookline_torch._native.
#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/chrono.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <hookline/store/store.hpp>

#include "adapter/callback_pool.hpp"
#include "adapter/libtorch/backend.hpp"
#include "adapter/libtorch/comm_hook.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/gil.hpp"
#include "adapter/libtorch/group.hpp"
#include "adapter/libtorch/python_comm_hook.hpp"
#include "adapter/libtorch/store.hpp"
#include "adapter/shared_capsule.hpp"

namespace hookline::libtorch {
namespace {

namespace py = pybind11;
using adapter::kGroupCapsule;
using adapter::kHookCapsule;
using adapter::kStoreCapsule;

template <class T>
py::capsule to_capsule(std::shared_ptr<T> object, const char* name) {
  auto capsule = py::reinterpret_steal<py::capsule>(adapter::new_shared_capsule<GilRelease>(std::move(object), name));
  if (!capsule) throw py::error_already_set();
  return capsule;
}

template <class T>
std::shared_ptr<T> from_capsule(const py::object& capsule, const char* name) {
  auto object = adapter::shared_from_capsule<T>(capsule.ptr(), name);
  if (!object) {
    throw py::type_error(std::string("wrong argument: expected a capsule of ") + name + ", got " +
                         std::string(py::str(capsule)));
  }
  return object;
}

bool python_is_running() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

/// Holds a Python object in native code. Releases it under the GIL, or leaks it if Python has finalized.
std::shared_ptr<PyObject> hold_object(py::object object) {
  return {object.release().ptr(), [](PyObject* pointer) {
            if (!python_is_running()) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(pointer);
          }};
}

void check_signals() {
  if (!python_is_running()) throw Aborted("wait: Python is finalizing");
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

/// The Python function hookline_torch.errors.for_torch, which converts hookline exceptions. Set once, and leaked.
PyObject* make_exception = nullptr;
// Function types of the capsules that hookline._core provides.
using ErrorToPython = PyObject*(const std::exception_ptr& error);
using OwnerOfObject = std::shared_ptr<void>(PyObject* object);
ErrorToPython* error_to_python = nullptr;
OwnerOfObject* owner_of_object = nullptr;

/// A Python exception that PyTorch can raise any number of times, on any thread.
class RaisedError final : public python_error, public ErrorCarrier {
 public:
  /// Requires the GIL.
  RaisedError(py::object exception, std::exception_ptr error) : ErrorCarrier(std::move(error)) {
    type = py::type::of(exception).release().ptr();
    traceback = PyException_GetTraceback(exception.ptr());
    value = exception.release().ptr();
    build_message();
  }
  RaisedError(const RaisedError&) = default;
  // After Python has finalized, its objects cannot be released.
  ~RaisedError() override {
    if (!python_is_running()) type = value = traceback = nullptr;
  }
};

std::exception_ptr to_python_error(const std::exception_ptr& error) {
  if (!python_is_running() || !make_exception) return nullptr;
  const py::gil_scoped_acquire gil;
  const py::error_scope saved_error;  // preserves the caller's error indicator
  auto exception = py::reinterpret_steal<py::object>(error_to_python(error));
  if (exception) exception = py::reinterpret_steal<py::object>(PyObject_CallOneArg(make_exception, exception.ptr()));
  if (exception) return std::make_exception_ptr(RaisedError(std::move(exception), error));
  PyErr_Clear();
  return nullptr;
}

/// Translates Hookline errors that leave functions of this module or of PyTorch. If a hookline backend is alive, also
/// appends advice to PyTorch's error about a device without a backend.
void translate_exception(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(error);
  } catch (const Error&) {
    torch::translate_exception_to_python(to_torch_error(error));
  } catch (const c10::Error& e) {
    const std::string text = e.what_without_backtrace();
    if (text.find("No backend type associated with device type") == std::string::npos || !has_live_backends()) throw;
    py::set_error(PyExc_RuntimeError,
                  (text + ". The hookline backend takes tensors on the CPU. Use " + kPerDeviceBackendAdvice).c_str());
  }
}

std::shared_ptr<void> owner_of_tensor(const at::Tensor& tensor) {
  if (!python_is_running() || !owner_of_object) return nullptr;
  const py::gil_scoped_acquire gil;
  // Returns the tensor's existing Python object, if any.
  const auto object = py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor));
  if (!object) throw py::error_already_set();
  return owner_of_object(object.ptr());
}

template <class Function>
Function* function_of_core(const char* name) {
  const py::object capsule = py::module_::import("hookline._core").attr(name)();
  void* const function = PyCapsule_GetPointer(capsule.ptr(), (std::string("hookline.") + name).c_str());
  if (!function) throw py::error_already_set();
  return reinterpret_cast<Function*>(function);
}

/// Connects this module with hookline._core; `make` becomes make_exception.
void connect_to_core(const py::object& make) {
  error_to_python = function_of_core<ErrorToPython>("error_to_python");
  owner_of_object = function_of_core<OwnerOfObject>("owner_of_object");
  make_exception = make.inc_ref().ptr();
}

void* release_gil() {
  if (!python_is_running() || !PyGILState_Check()) return nullptr;
  return PyEval_SaveThread();
}

void reacquire_gil(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

py::object group_of_backend(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto* const ours = dynamic_cast<TorchBackend*>(backend.get());
  if (!ours) return py::none();
  return to_capsule<ProcessGroup>(ours->group(), kGroupCapsule);
}

c10::intrusive_ptr<c10d::Backend> backend_of_group(const py::object& capsule, bool calls_python) {
  return c10::make_intrusive<TorchBackend>(from_capsule<ProcessGroup>(capsule, kGroupCapsule), BackendOptions(),
                                           calls_python);
}

py::capsule group_of_torch(const py::object& group) {
  auto native = group.cast<c10::intrusive_ptr<c10d::ProcessGroup>>();
  return to_capsule<ProcessGroup>(std::make_shared<TorchGroup>(std::move(native), hold_object(group)), kGroupCapsule);
}

py::capsule store_of_torch(const py::object& store) {
  auto native = store.cast<c10::intrusive_ptr<c10d::Store>>();
  return to_capsule<Store>(std::make_shared<TorchStore>(std::move(native), hold_object(store)), kStoreCapsule);
}

py::dict stats_of(const BucketHook& hook) {
  const StepStats stats = hook.scheduler()->stats();
  py::list buckets;
  for (const BucketStats& bucket : stats.buckets) {
    py::dict d;
    d["index"] = bucket.index;
    d["parameters"] = bucket.parameters;
    d["bytes"] = bucket.bytes;
    d["bytes_sent"] = bucket.bytes_sent;
    d["ready"] = bucket.ready;
    d["launched"] = bucket.launched;
    d["done"] = bucket.done;
    buckets.append(d);
  }
  py::dict d;
  d["step"] = stats.step;
  d["hook"] = stats.hook;
  d["buckets"] = buckets;
  d["bytes_sent"] = stats.bytes_sent;
  d["backward"] = stats.backward;
  d["exposed"] = stats.exposed_comm;
  d["total"] = stats.total;
  return d;
}

void bind_hooks(py::module_& m) {
  m.def("register_python_hook", [](c10d::Reducer& reducer, py::object function) {
    // The reducer owns the hook, and may be destroyed on any thread, even after Python has finalized.
    reducer.register_comm_hook(std::make_unique<PythonTorchHook>(hold_object(std::move(function))));
  });
  py::class_<BucketHook, std::shared_ptr<BucketHook>>(m, "BucketHook")
      .def(py::init([](const py::object& group, const py::object& hook, const std::vector<at::Tensor>& parameters,
                       const std::vector<std::string>& names) {
             return with_torch_errors([&] {
               return BucketHook::make(from_capsule<ProcessGroup>(group, kGroupCapsule),
                                       from_capsule<CommHookInterface>(hook, kHookCapsule), parameters, names);
             });
           }),
           py::arg("group"), py::arg("hook"), py::arg("parameters"), py::arg("names"))
      .def("register",
           [](const std::shared_ptr<BucketHook>& self, c10d::Reducer& reducer) {
             reducer.register_comm_hook(std::make_unique<TorchCommHook>(self));
           })
      .def("run",
           [](BucketHook& self, c10d::GradBucket& bucket) {
             c10::intrusive_ptr<c10::ivalue::Future> future;
             {
               const py::gil_scoped_release released;
               future = self.run(bucket, true);
             }
             return std::make_shared<torch::jit::PythonFutureWrapper>(std::move(future));
           })
      .def("replace",
           [](BucketHook& self, const py::object& hook) {
             with_torch_errors(
                 [&] { self.scheduler()->replace_hook(from_capsule<CommHookInterface>(hook, kHookCapsule)); });
           })
      .def("hook",
           [](BucketHook& self) { return to_capsule<CommHookInterface>(self.scheduler()->hook(), kHookCapsule); })
      .def("group", [](BucketHook& self) { return to_capsule<ProcessGroup>(self.scheduler()->group(), kGroupCapsule); })
      .def("stats", &stats_of);
}

std::chrono::milliseconds timeout_of(const py::object& timeout) {
  const py::object seconds = py::hasattr(timeout, "total_seconds") ? timeout.attr("total_seconds")() : timeout;
  if (!py::isinstance<py::float_>(seconds) && !py::isinstance<py::int_>(seconds)) {
    throw py::type_error("hookline.torch.Options: wrong timeout: expected seconds or a datetime.timedelta, got " +
                         std::string(py::str(py::type::of(timeout))));
  }
  const std::chrono::duration<double> duration(seconds.cast<double>());
  if (!(duration.count() > 0)) {
    throw InvalidArgument("hookline.torch.Options: wrong timeout: expected more than 0 s, got " +
                          std::string(py::str(timeout)));
  }
  return std::chrono::ceil<std::chrono::milliseconds>(std::min<std::chrono::duration<double>>(duration, kMaxTimeout));
}

std::optional<std::string> optional_name(const std::string& name) {
  return name.empty() ? std::nullopt : std::optional(name);
}

void bind_options(py::module_& m) {
  using Map = std::map<std::string, std::string>;
  const auto copied = [](const BackendOptions& self) { return c10::make_intrusive<BackendOptions>(self); };
  py::class_<BackendOptions, c10d::Backend::Options, c10::intrusive_ptr<BackendOptions>>(
      m, "Options",
      "Options of a group with the hookline backend, for pg_options of init_process_group and new_group: `backend` and "
      "`backend_options` of hookline.init_process_group, and `timeout`, which takes precedence if given.")
      .def(py::init([](std::optional<std::string> backend, Map options, const py::object& timeout) {
             auto made = c10::make_intrusive<BackendOptions>();
             made->group_backend = std::move(backend).value_or("");
             made->backend_options = std::move(options);
             if (!timeout.is_none()) made->timeout = timeout_of(timeout);
             return made;
           }),
           py::arg("backend") = py::none(), py::arg("backend_options") = Map(), py::arg("timeout") = py::none())
      .def_property_readonly(
          "backend", [](const BackendOptions& self) { return optional_name(self.group_backend); },
          "The hookline backend; None: chosen when the group is created.")
      .def_readonly("backend_options", &BackendOptions::backend_options, "The options of the backend.")
      .def_property(
          "timeout", [](const BackendOptions& self) { return self.timeout; },
          [](BackendOptions& self, const py::object& timeout) { self.timeout = timeout_of(timeout); },
          "The default timeout of operations: a timedelta; may be set in seconds.")
      .def("__copy__", copied)
      .def("__deepcopy__", [copied](const BackendOptions& self, const py::dict&) { return copied(self); })
      .def("__repr__", [](const BackendOptions& self) {
        return "hookline.torch.Options(backend=" + std::string(py::repr(py::cast(optional_name(self.group_backend)))) +
               ", backend_options=" + std::string(py::repr(py::cast(self.backend_options))) +
               ", timeout=" + std::string(py::repr(py::cast(self.timeout))) + ")";
      });
}

void bind(py::module_& m) {
  python_runtime() = {&check_signals, &release_gil, &reacquire_gil, &to_python_error, &owner_of_tensor};
  py::module_::import("torch._C._distributed_c10d");
  py::register_exception_translator(&translate_exception);
  m.def("connect_to_core", &connect_to_core);
  bind_options(m);
  m.def(
      "make_backend",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         const c10::intrusive_ptr<BackendOptions>& options) -> c10::intrusive_ptr<c10d::Backend> {
        return TorchBackend::create(std::make_shared<TorchStore>(store), rank, size, *options);
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("options"), py::call_guard<py::gil_scoped_release>());
  m.def("group_of_backend", &group_of_backend);
  m.def("backend_of_group", &backend_of_group);
  m.def("group_of_torch", &group_of_torch);
  m.def("store_of_torch", &store_of_torch);
  m.def("end", [] {
    const py::gil_scoped_release released;
    shut_down_backends();
    close_bucket_hooks();
    PythonTorchHook::close_all();
    adapter::CallbackPool::instance().close(std::chrono::seconds(2));
  });
  bind_hooks(m);
}

}  // namespace
}  // namespace hookline::libtorch

PYBIND11_MODULE(_native, m) { hookline::libtorch::bind(m); }
