// Binds Work.
#include <optional>
#include <string>
#include <utility>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "natively.hpp"
#include "py_future.hpp"
#include "py_group.hpp"
#include "rooms.hpp"
#include "timeout_caster.hpp"

namespace hookline::python {
namespace {

int traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<PyWork>(self)->outputs.ptr());
  return 0;
}

int clear(PyObject* self) {
  if (nb::inst_ready(self)) {
    const nb::object dropped = std::exchange(nb::inst_ptr<PyWork>(self)->outputs, nb::object());
  }
  return 0;
}

PyType_Slot slots[] = {
    {Py_tp_traverse, reinterpret_cast<void*>(traverse)}, {Py_tp_clear, reinterpret_cast<void*>(clear)}, {0, nullptr}};

/// A list of its own for each caller, who may change it.
nb::object outputs_of(const PyWork& self) {
  if (!self.outputs.is_valid()) return nb::list();
  nb::object copy = nb::steal(PyList_GetSlice(self.outputs.ptr(), 0, PY_SSIZE_T_MAX));
  if (!copy.is_valid()) throw nb::python_error();
  return copy;
}

bool wait(PyWork& self, std::optional<TimeoutArg> timeout) {
  std::optional<Milliseconds> limit;
  if (timeout) limit = timeout->value();
  const WorkPtr work = self.work;  // another thread may take the object apart meanwhile
  natively([&] { work->wait(limit); });
  return true;
}

// The worker that completes the operation never asks for the GIL: the reference to the value was made here, and the
// callbacks run on the group's callback thread.
nb::object get_future(PyWork& self) {
  PyRef outputs(outputs_of(self));
  Promise<PyRef> promise(callbacks_of(*self.group));
  Future<PyRef> future = promise.get_future();
  nb::object result = make_future(future);
  const WorkPtr work = self.work;
  {
    const nb::gil_scoped_release released;
    const auto native = work->get_future();
    native.on_done([native, outputs = std::move(outputs), promise = std::move(promise)]() mutable {
      try {
        native.value();
      } catch (...) {
        promise.set_error(std::current_exception());
        return;
      }
      promise.set_value(std::move(outputs));
    });
  }
  return result;
}

double seconds(Clock::time_point time) { return std::chrono::duration<double>(time.time_since_epoch()).count(); }

/// Asking drives the operation, which may move much data.
bool is_completed(PyWork& self) {
  const nb::gil_scoped_release released;
  return self.work->is_completed();
}

}  // namespace

void bind_work(nb::module_& m) {
  nb::class_<PyWork>(m, "Work", nb::type_slots(slots), nb::is_weak_referenceable(),
                     "An operation that was started. The objects passed to it stay alive until it is done.")
      .def("wait", &wait, nb::arg("timeout") = nb::none(),
           "Returns True when the operation is done and raises what it failed with. Raises Timeout when the time, or "
           "the operation's own, is up: the group is broken then.")
      .def("get_future", &get_future, nb::sig("def get_future(self) -> Future[list[typing.Any]]"),
           "A future of the list of the very objects that were passed as outputs. Callbacks run on the group's "
           "callback thread.")
      .def("is_completed", &is_completed)
      .def("is_success", [](PyWork& self) { return is_completed(self) && !self.work->exception(); })
      .def(
          "exception",
          [](PyWork& self) -> nb::object {
            const std::exception_ptr error = self.work->exception();
            return error ? error_to_python(error) : nb::none();
          },
          nb::sig("def exception(self) -> BaseException | None"), "None while it runs and where it succeeded.")
      .def("result", &outputs_of, nb::sig("def result(self) -> list[typing.Any]"),
           "The objects that were passed as outputs.")
      .def(
          "source_rank", [](PyWork& self) { return self.work->source_rank(); },
          "Where a received message came from, else -1.")
      .def_prop_ro(
          "op_type", [](PyWork& self) { return std::string(name(self.work->op_type())); },
          "The name of the method that started it.")
      .def_prop_ro(
          "sequence_number", [](PyWork& self) { return self.work->sequence_number(); },
          "Counts the group's operations on this rank, from 1.")
      .def_prop_ro(
          "time_started", [](PyWork& self) { return seconds(self.work->time_started()); },
          "In seconds, by the clock of time.monotonic().")
      .def_prop_ro(
          "time_finished",
          [](PyWork& self) {
            return is_completed(self) ? std::optional(seconds(self.work->time_finished())) : std::nullopt;
          },
          "The same; None while it runs.")
      .def("__repr__", [](PyWork& self) {
        const char* state = !is_completed(self) ? "pending" : self.work->exception() ? "failed" : "done";
        return "<hookline.Work " + std::string(name(self.work->op_type())) + " number " +
               std::to_string(self.work->sequence_number()) + ", " + state + ">";
      });
}

}  // namespace hookline::python
