// The extension hookline_torch._native: what Python needs of the parts in this folder.
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include <hookline/store/store.hpp>

#include "adapter/callback_pool.hpp"
#include "adapter/libtorch/backend.hpp"
#include "adapter/libtorch/comm_hook.hpp"
#include "adapter/libtorch/errors.hpp"
#include "adapter/libtorch/group.hpp"
#include "adapter/libtorch/python_comm_hook.hpp"
#include "adapter/libtorch/store.hpp"
#include "adapter/libtorch/waiting.hpp"

namespace hookline::libtorch {
namespace {

namespace py = pybind11;

// Objects of this library cross to its own module and back as capsules that hold a shared pointer, under these names.
constexpr const char* kGroup = "hookline.ProcessGroup";
constexpr const char* kHook = "hookline.CommHook";
constexpr const char* kStore = "hookline.Store";

template <class T>
py::capsule capsule_of(std::shared_ptr<T> object, const char* name) {
  return py::capsule(new std::shared_ptr<T>(std::move(object)), name, [](PyObject* capsule) {
    const std::unique_ptr<std::shared_ptr<T>> kept(
        static_cast<std::shared_ptr<T>*>(PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule))));
    const WithoutGil released;
    kept->reset();
  });
}

template <class T>
std::shared_ptr<T> object_in(const py::object& capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule.ptr(), name)) {
    throw py::type_error(std::string("a capsule of ") + name + " is expected, not " + std::string(py::str(capsule)));
  }
  return *static_cast<std::shared_ptr<T>*>(PyCapsule_GetPointer(capsule.ptr(), name));
}

bool python_is_there() {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

/// A Python object that native code keeps; let go of with the GIL, or never where Python has ended.
std::shared_ptr<PyObject> kept_object(py::object object) {
  return {object.release().ptr(), [](PyObject* pointer) {
            if (!python_is_there()) return;
            const py::gil_scoped_acquire gil;
            Py_DECREF(pointer);
          }};
}

void check_signals() {
  if (!python_is_there()) throw Aborted("the wait was given up: Python is ending");
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

void* release_gil() {
  if (!python_is_there() || !PyGILState_Check()) return nullptr;
  return PyEval_SaveThread();
}

void take_gil_back(void* state) { PyEval_RestoreThread(static_cast<PyThreadState*>(state)); }

py::object group_of_backend(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto* const ours = dynamic_cast<TorchBackend*>(backend.get());
  if (!ours) return py::none();
  return capsule_of<ProcessGroup>(ours->group(), kGroup);
}

c10::intrusive_ptr<c10d::Backend> backend_of_group(const py::object& capsule) {
  return c10::make_intrusive<TorchBackend>(object_in<ProcessGroup>(capsule, kGroup));
}

py::capsule group_of_torch(const py::object& group) {
  auto native = group.cast<c10::intrusive_ptr<c10d::ProcessGroup>>();
  return capsule_of<ProcessGroup>(std::make_shared<TorchGroup>(std::move(native), kept_object(group)), kGroup);
}

py::capsule store_of_torch(const py::object& store) {
  auto native = store.cast<c10::intrusive_ptr<c10d::Store>>();
  return capsule_of<Store>(std::make_shared<TorchStore>(std::move(native), kept_object(store)), kStore);
}

py::dict stats_of(const BucketHook& hook) {
  const StepStats stats = hook.lanes()->stats();
  py::list buckets;
  for (const BucketStats& bucket : stats.buckets) {
    py::dict d;
    d["index"] = bucket.index;
    d["parameters"] = bucket.parameters;
    d["bytes"] = bucket.bytes;
    d["sent_bytes"] = bucket.sent_bytes;
    d["ready"] = bucket.ready;
    d["launched"] = bucket.launched;
    d["done"] = bucket.done;
    buckets.append(d);
  }
  py::dict d;
  d["step"] = stats.step;
  d["hook"] = stats.hook;
  d["buckets"] = buckets;
  d["sent_bytes"] = stats.sent_bytes;
  d["backward"] = stats.backward;
  d["exposed"] = stats.exposed;
  d["total"] = stats.total;
  return d;
}

void bind_hooks(py::module_& m) {
  m.def("register_python_hook", [](c10d::Reducer& reducer, py::object function) {
    // The reducer, which keeps the hook, may end on any thread, and after Python.
    reducer.register_comm_hook(std::make_unique<PythonTorchHook>(kept_object(std::move(function))));
  });
  py::class_<BucketHook, std::shared_ptr<BucketHook>>(m, "BucketHook")
      .def(py::init([](const py::object& group, const py::object& hook, const std::vector<at::Tensor>& parameters,
                       const std::vector<std::string>& names) {
             return called_by_torch([&] {
               return BucketHook::make(object_in<ProcessGroup>(group, kGroup),
                                       object_in<CommHookInterface>(hook, kHook), parameters, names);
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
             called_by_torch([&] { self.lanes()->replace(object_in<CommHookInterface>(hook, kHook)); });
           })
      .def("hook", [](BucketHook& self) { return capsule_of<CommHookInterface>(self.lanes()->hook(), kHook); })
      .def("group", [](BucketHook& self) { return capsule_of<ProcessGroup>(self.lanes()->group(), kGroup); })
      .def("stats", &stats_of);
}

void bind(py::module_& m) {
  python_hooks() = {&check_signals, &release_gil, &take_gil_back};
  py::module_::import("torch._C._distributed_c10d");
  m.def(
      "make_backend",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
         double seconds) -> c10::intrusive_ptr<c10d::Backend> {
        const std::chrono::duration<double> timeout(seconds);
        return TorchBackend::create(std::make_shared<TorchStore>(store), rank, size,
                                    std::chrono::ceil<std::chrono::milliseconds>(timeout));
      },
      py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("seconds"), py::call_guard<py::gil_scoped_release>());
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
