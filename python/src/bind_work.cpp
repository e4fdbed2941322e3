// Binds Work, for native works and as a base class for Python, and WorkInfo.
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.hpp"
#include "gc_slots.hpp"
#include "gil_release.hpp"
#include "py_call.hpp"
#include "py_future.hpp"
#include "py_group.hpp"
#include "py_work.hpp"
#include "timeout_arg.hpp"
#include "without_gil.hpp"
#include "work_future.hpp"

namespace hookline::python {
namespace {

/// Converts a steady clock time to wall clock time for Python's datetime. The offset is measured once, so that the
/// order of times is preserved.
std::chrono::system_clock::time_point to_wall_clock(Clock::time_point time) {
  static const auto offset = std::chrono::system_clock::now() - Clock::now().time_since_epoch();
  return std::chrono::time_point_cast<std::chrono::system_clock::duration>(offset + time.time_since_epoch());
}

/// Returns the work if it is a Python object and this is its only owner, else null.
const PyWork* sole_python_work(const WorkObject& work) {
  return work.work.use_count() == 1 ? dynamic_cast<const PyWork*>(work.work.get()) : nullptr;
}

int traverse(const WorkObject& work, visitproc visit, void* arg) {
  Py_VISIT(work.group.ptr());
  Py_VISIT(work.outputs.ptr());
  Py_VISIT(work.future.ptr());
  Py_VISIT(work.error.ptr());
  if (const PyWork* const python = sole_python_work(work)) Py_VISIT(python->sole_reference().ptr());
  return 0;
}

void clear(WorkObject& work) {
  const nb::object released[] = {std::exchange(work.group, {}), std::exchange(work.outputs, {}),
                                 std::exchange(work.future, {}), std::exchange(work.error, {})};
  if (sole_python_work(work)) const WorkPtr python = std::exchange(work.work, nullptr);
}

WorkObject& work_object_of(nb::handle self) {
  if (!nb::inst_ready(self)) throw nb::type_error(missing_super_init(self, "").c_str());
  return *nb::inst_ptr<WorkObject>(self);
}

void init(WorkObject* self, nb::object future) {
  if (!future.is_none() && !is_future(future)) {
    throw nb::type_error(("Work: future: expected a hookline.Future, got " + class_name_of(future)).c_str());
  }
  new (self) WorkObject{};
  if (!future.is_none()) self->future = std::move(future);
}

/// Returns the future of a work created in Python: the constructor's argument, or the result of its get_future().
nb::object python_future(nb::handle self) {
  if (work_object_of(self).future.is_valid()) return work_object_of(self).future;
  if (!work_overrides(self, "get_future")) {
    throw Unsupported(class_name_of(self) +
                      " has no future. Define get_future in the class, or pass one to Work.__init__.");
  }
  nb::object future = self.attr("get_future")();
  if (!is_future(future)) throw_wrong_result(self, "get_future", "a hookline.Future", future);
  return future;
}

/// Replaces a failed work after its error has moved to the Python object.
class FailedWork final : public Work {
 public:
  explicit FailedWork(Work& work)
      : type_(work.op_type()),
        sequence_(work.sequence_number()),
        started_(work.time_started()),
        finished_(work.time_finished()) {}

  void wait(std::optional<Milliseconds>) override { throw Aborted("this work has failed"); }
  Future<std::vector<Tensor>> get_future() override { throw Aborted("this work has failed"); }
  bool is_completed() override { return true; }
  std::exception_ptr exception() override { return std::make_exception_ptr(Aborted("this work has failed")); }
  std::vector<Tensor> result() override { return {}; }
  OpType op_type() const override { return type_; }
  std::uint64_t sequence_number() const override { return sequence_; }
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override { return finished_; }

 private:
  const OpType type_;
  const std::uint64_t sequence_;
  const Clock::time_point started_;
  const Clock::time_point finished_;
};

/// Moves the Python exception of a failed native work into the Python object before it is raised. Its traceback will
/// refer to frames that refer to the work: a cycle that the garbage collector must see.
void move_error_to_object(WorkObject& object, const PythonException& error) {
  if (object.error.is_valid() || !object.work) return;
  object.error = error.exception().object();
  const WorkPtr failed = std::exchange(object.work, std::make_shared<FailedWork>(*object.work));
}

[[noreturn]] void raise(nb::handle error) {
  set_python_error(error);
  throw nb::python_error();
}

/// Returns a new list for each caller, so that callers can modify it.
nb::object outputs_of(nb::handle self) {
  const WorkObject& work = work_object_of(self);
  if (!work.work) return python_future(self).attr("value")();
  if (!work.outputs.is_valid()) return nb::list();
  nb::object copy = nb::steal(PyList_GetSlice(work.outputs.ptr(), 0, PY_SSIZE_T_MAX));
  if (!copy.is_valid()) throw nb::python_error();
  return copy;
}

/// Waits for a future of another library, whose own wait may not support a timeout.
void wait_for_foreign_future(nb::handle future, std::optional<TimeoutArg> timeout) {
  const nb::object done = nb::type<PyFuture>()();
  future.attr("add_done_callback")(
      nb::cpp_function([done](nb::handle) { nb::inst_ptr<PyFuture>(done)->set_result(nb::none()); }));
  nb::inst_ptr<PyFuture>(done)->wait(timeout);
  future.attr(nb::hasattr(future, "wait") ? "wait" : "result")();
}

bool wait(nb::handle self, std::optional<TimeoutArg> timeout) {
  const WorkPtr work = work_object_of(self).work;  // a copy: another thread may clear the object meanwhile
  if (!work) {
    const nb::object future = python_future(self);
    if (nb::isinstance<PyFuture>(future)) nb::inst_ptr<PyFuture>(future)->wait(timeout);
    else wait_for_foreign_future(future, timeout);
    return true;
  }
  if (work_object_of(self).error.is_valid()) raise(work_object_of(self).error);
  try {
    without_gil([&] { work->wait(timeout); });
  } catch (const PythonException& e) {
    if (work->is_completed())
      move_error_to_object(work_object_of(self), e);  // not if a signal handler interrupted the wait
    throw;
  }
  return true;
}

/// Returns a future for a work that only has wait(), which runs on the blocking executor.
nb::object future_from_wait(nb::handle self) {
  const auto executor = blocking_executor();
  if (!executor) throw Aborted("Work.get_future: Python is finalizing");
  Promise<PyRef> promise(callback_executor());
  nb::object result = make_future(promise.get_future());
  executor->post([work = PyRef(nb::borrow(self)), promise = std::move(promise)]() mutable {
    promise.set_from([&] {
      return call_python("Work.wait", [&] {
        work.get().attr("wait")();
        return PyRef(nb::list());
      });
    });
  });
  return result;
}

// The worker thread that completes the operation never needs the GIL: the reference to the value is created here, and
// callbacks run on the group's callback thread.
nb::object get_future(nb::handle self) {
  const WorkObject& object = work_object_of(self);
  if (object.future.is_valid()) return object.future;
  if (!object.work) return work_overrides(self, "wait") ? future_from_wait(self) : python_future(self);
  if (object.error.is_valid()) {
    nb::object failed = nb::type<PyFuture>()();
    failed.attr("set_exception")(object.error);
    return failed;
  }
  PyRef outputs(outputs_of(self));
  Promise<PyRef> promise(object.group.is_valid() ? callback_executor_of(nb::cast<ProcessGroup&>(object.group))
                                                 : callback_executor());
  Future<PyRef> future = promise.get_future();
  nb::object result = make_future(future);
  const WorkPtr work = object.work;
  {
    const GilRelease released;
    const auto native = work->get_future();
    native.on_done([native, outputs = std::move(outputs), promise = std::move(promise)]() mutable {
      promise.set_from([&] {
        native.value();
        return std::move(outputs);
      });
    });
  }
  return result;
}

/// Awaits get_future(), which a class may override.
nb::object await(nb::handle self) {
  return nb::module_::import_("hookline._futures").attr("await_future")(self.attr("get_future")());
}

/// Releases the GIL, because polling drives the operation, which may move much data.
bool is_completed(nb::handle self) {
  const WorkPtr work = work_object_of(self).work;
  if (!work) return nb::cast<bool>(python_future(self).attr("done")());
  const GilRelease released;
  return work->is_completed();
}

nb::object exception(nb::handle self) {
  const WorkPtr work = work_object_of(self).work;
  if (work_object_of(self).error.is_valid()) return work_object_of(self).error;
  if (work) {
    const std::exception_ptr error = work->exception();
    return error ? error_to_python(error) : nb::none();
  }
  const nb::object future = python_future(self);
  if (!nb::cast<bool>(future.attr("done")())) return nb::none();
  if (nb::hasattr(future, "exception")) return future.attr("exception")();
  try {
    future.attr("value")();
  } catch (const nb::python_error& e) {
    return nb::borrow(e.value());
  }
  return nb::none();
}

/// Returns the native work; throws Unsupported for a work created in Python.
Work& native_work(nb::handle self, const char* attribute) {
  const WorkPtr& work = work_object_of(self).work;
  if (!work) throw Unsupported(class_name_of(self) + " was created in Python and has no " + attribute);
  return *work;
}

std::string repr(nb::handle self) {
  if (!work_object_of(self).work)
    return std::string("<").append(class_name_of(self)) + ", a hookline.Work created in Python>";
  const Work& work = native_work(self, "repr");
  const char* state = !is_completed(self) ? "pending" : work_object_of(self).work->exception() ? "failed" : "done";
  return "<hookline.Work " + std::string(name(work.op_type())) + " number " + std::to_string(work.sequence_number()) +
         ", " + state + ">";
}

void bind_work_info(nb::module_& m) {
  nb::class_<WorkInfo>(m, "WorkInfo", "Information about a completed operation, passed to completion hooks.")
      .def_prop_ro(
          "op_type", [](const WorkInfo& i) { return std::string(name(i.op_type)); },
          "The name of the method that started the operation.")
      .def_ro("seq", &WorkInfo::seq, "The sequence number of the operation in the group on this rank, from 1.")
      .def_prop_ro("time_started", [](const WorkInfo& i) { return to_wall_clock(i.time_started); })
      .def_prop_ro("time_finished", [](const WorkInfo& i) { return to_wall_clock(i.time_finished); })
      .def_prop_ro(
          "active_duration",
          [](const WorkInfo& i) { return std::chrono::duration_cast<std::chrono::microseconds>(i.active_duration); },
          "The time since its start, or since the end of the previous operation in its lane if that is later.")
      .def_ro("lane", &WorkInfo::lane)
      .def_ro("bucket", &WorkInfo::bucket)
      .def_ro("bytes", &WorkInfo::bytes,
              "The size in bytes of this rank's inputs, or of its outputs if it has no inputs.")
      .def_prop_ro(
          "error", [](const WorkInfo& i) -> nb::object { return i.error ? error_to_python(i.error) : nb::none(); },
          nb::sig("def error(self) -> BaseException | None"), "The error; None if the operation succeeded.")
      .def("__repr__", [](const WorkInfo& i) {
        return "<hookline.WorkInfo " + std::string(name(i.op_type)) + " number " + std::to_string(i.seq) + ", " +
               (i.error ? "failed>" : "done>");
      });
}

}  // namespace

void bind_work(nb::module_& m) {
  nb::class_<WorkObject>(m, "Work", nb::type_slots(gc_slots<WorkObject, traverse, clear>), nb::is_weak_referenceable(),
                         "A started operation. It keeps its arguments alive until it is done. Awaitable in asyncio. "
                         "Derived classes can override wait(timeout), get_future() and is_completed().")
      .def("__init__", &init, nb::arg("future").none() = nb::none(),
           nb::sig("def __init__(self, future: Future[typing.Any] | None = None) -> None"),
           "Creates a work that is done when the future is.")
      .def("wait", &wait, nb::arg("timeout") = nb::none(),
           "Waits for the operation. Returns True, or raises its error. Raises Timeout after the timeout or the "
           "operation's own timeout; the group is then broken.")
      .def("get_future", &get_future, nb::sig("def get_future(self) -> Future[list[typing.Any]]"),
           "Returns a future of the list of the objects passed as outputs. Callbacks run on the group's callback "
           "thread.")
      .def("__await__", &await, nb::sig("def __await__(self) -> typing.Generator[typing.Any, None, list[typing.Any]]"),
           "Awaits the operation in asyncio, and returns the list of outputs.")
      .def("is_completed", &is_completed, "True if the operation is done, successfully or not.")
      .def(
          "is_success", [](nb::handle self) { return is_completed(self) && exception(self).is_none(); },
          "True if the operation is done and succeeded.")
      .def("exception", &exception, nb::sig("def exception(self) -> BaseException | None"),
           "Returns the error; None while the operation runs and if it succeeded.")
      .def("result", &outputs_of, nb::sig("def result(self) -> list[typing.Any]"),
           "Returns the objects passed as outputs.")
      .def(
          "source_rank",
          [](nb::handle self) { return work_object_of(self).work ? work_object_of(self).work->source_rank() : -1; },
          "Returns the sender of a received message, else -1.")
      .def_prop_ro(
          "op_type", [](nb::handle self) { return std::string(name(native_work(self, "op_type").op_type())); },
          "The name of the method that started the operation.")
      .def_prop_ro(
          "sequence_number", [](nb::handle self) { return native_work(self, "sequence_number").sequence_number(); },
          "The sequence number of the operation in the group on this rank, from 1.")
      .def_prop_ro("time_started",
                   [](nb::handle self) { return to_wall_clock(native_work(self, "time_started").time_started()); })
      .def_prop_ro(
          "time_finished",
          [](nb::handle self) {
            Work& work = native_work(self, "time_finished");
            return is_completed(self) ? std::optional(to_wall_clock(work.time_finished())) : std::nullopt;
          },
          "The completion time; None while the operation runs.")
      .def("__repr__", &repr);
  bind_work_info(m);
}

}  // namespace hookline::python
