// Binds Future.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/typing.h>

#include "gc_slots.hpp"
#include "py_future.hpp"
#include "rooms.hpp"

namespace hookline::python {
namespace {

void finalize(PyObject* self) {
  if (nb::inst_ready(self)) nb::inst_ptr<PyFuture>(self)->finalize();
}

PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse_slot<PyFuture, &PyFuture::traverse>)},
                       {Py_tp_clear, reinterpret_cast<void*>(clear_slot<PyFuture, &PyFuture::clear>)},
                       {Py_tp_finalize, reinterpret_cast<void*>(finalize)},
                       {0, nullptr}};

nb::object await(nb::handle self) { return nb::module_::import_("hookline._futures").attr("await_future")(self); }

}  // namespace

void bind_future(nb::module_& m) {
  m.attr("T") = nb::type_var("T");
  m.attr("S") = nb::type_var("S");
  nb::class_<PyFuture>(m, "Future", nb::type_slots(slots), nb::is_weak_referenceable(), nb::is_generic(),
                       nb::sig("class Future(typing.Generic[T])"),
                       "A value that comes later. May be used from any thread, and awaited in asyncio.")
      .def(nb::init<>(), "A future that is completed by set_result or set_exception.")
      .def("done", &PyFuture::done, "Whether there is an outcome, be it a value or an error.")
      .def("wait", &PyFuture::wait, nb::arg("timeout") = nb::none(),
           nb::sig("def wait(self, timeout: float | datetime.timedelta | None = None) -> T"),
           "Waits for the outcome and returns the value or raises the error. Raises Timeout where neither is there in "
           "time: seconds or a timedelta, 30 minutes where not given.")
      .def("value", &PyFuture::value, nb::sig("def value(self) -> T"),
           "The value of a completed future, or its error raised.")
      .def("exception", &PyFuture::exception, nb::sig("def exception(self) -> BaseException | None"),
           "The error of a completed future, or None.")
      .def("set_result", &PyFuture::set_result, nb::arg("result").none(),
           nb::sig("def set_result(self, result: T) -> None"),
           "Completes the future. InvalidArgument where it has an outcome already.")
      .def("set_exception", &PyFuture::set_exception, nb::arg("result"),
           nb::sig("def set_exception(self, result: BaseException) -> None"),
           "Fails the future with an exception, which wait() and value() raise as it is, with its traceback.")
      .def(
          "then", [](PyFuture& self, nb::callable callback) { return self.then(callback); }, nb::arg("callback"),
          nb::sig("def then(self, callback: typing.Callable[[Future[T]], Future[S] | S]) -> Future[S]"),
          "Calls callback(future) once this is done, failed or not, and returns a future of what that returns (a "
          "Future is taken over, not nested) or raises. Runs in the thread that completes this future, or at once.")
      .def(
          "add_done_callback", [](PyFuture& self, nb::callable callback) { self.add_done_callback(callback); },
          nb::arg("callback"),
          nb::sig("def add_done_callback(self, callback: typing.Callable[[Future[T]], object]) -> None"),
          "Calls callback(future) once this is done. What it raises goes to sys.unraisablehook.")
      .def("__await__", &await, nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, T]"))
      .def("__repr__", &PyFuture::repr);
}

}  // namespace hookline::python
