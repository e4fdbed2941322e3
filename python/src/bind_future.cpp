// Binds Future.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/typing.h>

#include "bindings.hpp"
#include "gc_slots.hpp"
#include "py_future.hpp"

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
                       "The result of an asynchronous operation. Usable from any thread, and awaitable in asyncio.")
      .def(nb::init<>(), "Creates a future to be completed by set_result or set_exception.")
      .def("done", &PyFuture::done, "True if the future has a value or an error.")
      .def("wait", &PyFuture::wait, nb::arg("timeout") = nb::none(),
           nb::sig("def wait(self, timeout: float | datetime.timedelta | None = None) -> T"),
           "Waits for completion, and returns the value or raises the error. Raises Timeout after the timeout: seconds "
           "or a timedelta, by default 30 minutes.")
      .def("value", &PyFuture::value, nb::sig("def value(self) -> T"),
           "Returns the value of a completed future, or raises its error.")
      .def("exception", &PyFuture::exception, nb::sig("def exception(self) -> BaseException | None"),
           "Returns the error of a completed future, or None.")
      .def("set_result", &PyFuture::set_result, nb::arg("result").none(),
           nb::sig("def set_result(self, result: T) -> None"),
           "Completes the future with a value. Raises InvalidArgument if it is already completed.")
      .def("set_exception", &PyFuture::set_exception, nb::arg("result"),
           nb::sig("def set_exception(self, result: BaseException) -> None"),
           "Completes the future with an exception. wait() and value() raise this object, with its traceback.")
      .def(
          "then", [](PyFuture& self, nb::callable callback) { return self.then(callback); }, nb::arg("callback"),
          nb::sig("def then(self, callback: typing.Callable[[Future[T]], Future[S] | S]) -> Future[S]"),
          "Calls callback(future) when this future is done, successfully or not. Returns a future of the callback's "
          "result or error; a returned Future is flattened. The callback runs on the completing thread, or immediately "
          "if this future is already done.")
      .def(
          "add_done_callback", [](PyFuture& self, nb::callable callback) { self.add_done_callback(callback); },
          nb::arg("callback"),
          nb::sig("def add_done_callback(self, callback: typing.Callable[[Future[T]], object]) -> None"),
          "Calls callback(future) when this future is done. Its exceptions go to sys.unraisablehook.")
      .def("__await__", &await, nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, T]"))
      .def("__repr__", &PyFuture::repr);
}

}  // namespace hookline::python
