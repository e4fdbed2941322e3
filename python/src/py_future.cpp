// PyFuture: outcomes, callbacks and waiting.
#include "py_future.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gil_release.hpp"

namespace hookline::python {
namespace {

/// How soon a waiting thread notices Ctrl-C, and that Python ends.
constexpr Milliseconds kPollInterval{100};

/// Futures whose callbacks the loop in run_callbacks is to run next: a long chain must not become a deep recursion.
thread_local std::vector<nb::object>* deferred = nullptr;

template <class... Arguments>
nb::object new_future(Arguments&&... arguments) {
  nb::object object = nb::inst_alloc(nb::type<PyFuture>());
  new (nb::inst_ptr<PyFuture>(object)) PyFuture(std::forward<Arguments>(arguments)...);
  nb::inst_mark_ready(object);
  return object;
}

bool is_python_exception(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const PythonException&) {
    return true;
  } catch (const nb::python_error&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

PyFuture::PyFuture() : promise_(std::in_place), future_(promise_->get_future()) {}

PyFuture::PyFuture(Future<PyRef> future) : future_(std::move(future)) {}

PyFuture::~PyFuture() {
  if (self_link_) *self_link_ = nullptr;
  abandon(std::move(callbacks_));
  // Whoever waits in C++ is told here, and may run for long; and the last reference to a native future may join a
  // thread that wants the GIL for its own end.
  if (shared_ || !promise_) {
    const GilRelease released;
    promise_.reset();
    future_ = Future<PyRef>::ready();
  }
}

nb::object PyFuture::wait(std::optional<TimeoutArg> timeout) {
  const Milliseconds limit = timeout ? *timeout : kDefaultTimeout;
  const auto deadline = deadline_after(limit);
  // A callback that waits for another one does the work of its thread meanwhile.
  const auto current_executor = promise_ && !done() ? ThreadExecutor::current() : nullptr;
  if (current_executor) future_.on_done([current_executor] { current_executor->post([] {}); });
  while (!done()) {
    const Milliseconds remaining = time_left(deadline);
    if (remaining == Milliseconds(0)) {
      throw Timeout("Future.wait: not done after " + std::to_string(limit.count()) + " ms");
    }
    const Future<PyRef> future = future_;
    {
      const GilRelease released;
      const auto slice = deadline_after(std::min(remaining, kPollInterval));
      if (current_executor) ThreadExecutor::run_next(slice);
      else future.wait_until(slice);
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
    if (is_finalizing() && !done()) throw Aborted("Future.wait: Python is ending and nobody will complete this future");
  }
  return value();
}

nb::object PyFuture::value() {
  const nb::object error = done() ? exception() : nb::none();
  if (error.is_none()) return future_.value().object();
  set_python_error(error);
  throw nb::python_error();
}

nb::object PyFuture::exception() {
  if (!done()) throw InvalidArgument("exception() of a future that is not done; wait() for it first");
  const std::exception_ptr error = future_.error();
  if (!error) return nb::none();
  if (error_moved_) return error_;
  if (is_python_exception(error)) {
    if (promise_ || shared_) return error_to_python(error);
    // Its traceback may come to refer to this future: a cycle that the garbage collector must see.
    error_ = error_to_python(error);
    error_moved_ = true;
    Future<PyRef> previous = Future<PyRef>::failed(std::make_exception_ptr(Aborted("this future has failed")));
    std::swap(future_, previous);
    const GilRelease released;
    previous = Future<PyRef>::ready();
  } else if (!error_.is_valid()) {
    error_ = error_to_python(error);
  }
  return error_;
}

void PyFuture::check_pending(const char* caller) const {
  if (!promise_) throw InvalidArgument(std::string(caller) + ": this future is completed by native code");
  if (done()) throw InvalidArgument(std::string(caller) + ": this future has an outcome already");
}

void PyFuture::set_result(nb::object result) {
  check_pending("Future.set_result");
  if (!complete(PyRef(std::move(result)), nullptr)) check_pending("Future.set_result");
}

void PyFuture::set_exception(nb::handle exception) {
  check_pending("Future.set_exception");
  if (!PyExceptionInstance_Check(exception.ptr())) {
    throw nb::type_error("Future.set_exception takes an exception object, such as ValueError('text')");
  }
  PyRef reference(nb::borrow(exception));
  if (!complete(reference, error_from_python(reference))) check_pending("Future.set_exception");
}

// Continuations run inside the completing call, and native ones must not find the GIL held.
bool PyFuture::complete(PyRef reference, std::exception_ptr error) {
  const auto finish = [&] {
    return error ? promise_->try_set_error(std::move(error)) : promise_->try_set_value(std::move(reference));
  };
  if (shared_) {
    // They may wait for other futures, whose callbacks therefore must not be left to the loop that has come here.
    auto* const outer = std::exchange(deferred, nullptr);
    const GilRelease released;
    const bool first = finish();
    deferred = outer;
    return first;
  }
  result_ref_ = reference;
  return finish();
}

nb::object PyFuture::then(nb::object callback) {
  nb::object child = new_future();
  add({std::move(callback), child});
  return child;
}

void PyFuture::add_done_callback(nb::object callback) { add({std::move(callback), nb::object()}); }

void PyFuture::add(Callback callback) {
  callbacks_.push_back(std::move(callback));
  if (std::exchange(scheduled_, true)) return;
  if (!self_link_) self_link_ = std::make_shared<PyFuture*>(this);
  PyRef self_ref = promise_ ? PyRef() : PyRef(nb::find(*this));
  future_.on_done([link = self_link_, self_ref = std::move(self_ref)]() mutable {
    with_gil([&] {
      const PyRef self = std::move(self_ref);
      if (*link) (*link)->run_callbacks();
    });
  });
}

void PyFuture::run_callbacks() {
  nb::object self = nb::find(*this);
  if (deferred) {
    deferred->push_back(std::move(self));
    return;
  }
  std::vector<nb::object> ready;
  ready.push_back(std::move(self));
  for (std::size_t i = 0; i < ready.size(); ++i) {
    const nb::object current = std::move(ready[i]);
    PyFuture& future = *nb::inst_ptr<PyFuture>(current);
    future.scheduled_ = false;
    const std::vector<Callback> callbacks = std::exchange(future.callbacks_, {});
    for (const Callback& callback : callbacks) {
      nb::object result;
      PyRef failure;
      try {
        const ContextScope scope(callback.context);
        if (callback.function.is_valid()) result = callback.function(current);
      } catch (nb::python_error& e) {
        if (!callback.child.is_valid() || nb::inst_ptr<PyFuture>(callback.child)->done()) {
          e.discard_as_unraisable(callback.function);
          continue;
        }
        failure = PyRef(nb::borrow(e.value()));
      }
      if (!callback.child.is_valid()) continue;
      PyFuture& child = *nb::inst_ptr<PyFuture>(callback.child);
      if (child.done()) continue;  // somebody completed it by hand
      deferred = &ready;
      if (failure) child.complete(failure, error_from_python(failure));
      else if (!callback.function.is_valid()) future.forward_outcome_to(child);
      else child.resolve_with(std::move(result), callback.child);
      deferred = nullptr;
    }
  }
}

// Whoever waits is told. This object is on its way out, so callbacks see another future in its place.
void PyFuture::abandon(std::vector<Callback> callbacks) {
  if (callbacks.empty() || is_finalizing()) return;
  const auto error =
      std::make_exception_ptr(Aborted("the future that this one waited for was dropped before it was done"));
  const nb::error_scope current_error;
  const nb::object replacement = new_future(Future<PyRef>::failed(error));
  PyFuture& future = *nb::inst_ptr<PyFuture>(replacement);
  future.callbacks_ = std::move(callbacks);
  future.run_callbacks();
}

// The garbage collector calls this while everything that it is about to take apart is still in order.
void PyFuture::finalize() {
  if (!promise_ || done() || (callbacks_.empty() && !shared_) || is_finalizing()) return;
  const nb::error_scope current_error;
  complete(PyRef(), std::make_exception_ptr(Aborted("this future was dropped before it was done")));
}

void PyFuture::resolve_with(nb::object result, nb::handle self) {
  if (!nb::isinstance<PyFuture>(result)) {
    complete(PyRef(std::move(result)), nullptr);
  } else if (result.is(self)) {
    complete(PyRef(), std::make_exception_ptr(
                          InvalidArgument("Future.then: the callback returned the very future that waits for it")));
  } else {
    nb::inst_ptr<PyFuture>(result)->add({nb::object(), nb::borrow(self)});
  }
}

// A reference of its own for the child: the garbage collector counts each as held by one future.
void PyFuture::forward_outcome_to(PyFuture& child) const {
  const std::exception_ptr error = future_.error();
  if (!error) {
    child.complete(PyRef(future_.value().object()), nullptr);
  } else if (error_moved_ || is_python_exception(error)) {
    const PyRef reference(error_moved_ ? error_ : error_to_python(error));
    child.complete(reference, error_from_python(reference));
  } else {
    child.complete(PyRef(), error);
  }
}

std::string PyFuture::repr() {
  if (!done()) return "<hookline.Future pending>";
  const nb::object error = exception();
  const nb::object shown = error.is_none() ? future_.value().object() : error;
  return std::string(error.is_none() ? "<hookline.Future done: " : "<hookline.Future failed: ") +
         nb::repr(shown).c_str() + ">";
}

Future<PyRef> PyFuture::share() {
  if (std::exchange(error_moved_, false)) future_ = Future<PyRef>::failed(error_from_python(PyRef(error_)));
  shared_ = true;
  return future_;
}

int PyFuture::traverse(visitproc visit, void* arg) const {
  Py_VISIT(error_.ptr());
  if (!shared_) Py_VISIT(result_ref_.get().ptr());
  for (const Callback& callback : callbacks_) {
    Py_VISIT(callback.function.ptr());
    Py_VISIT(callback.child.ptr());
  }
  return 0;
}

// What is let go runs Python code, so this object is in order before anything is let go.
void PyFuture::clear() {
  // All that waited was told when this was finalized; what is left came later and may be taken apart already.
  const std::vector<Callback> released_callbacks = std::exchange(callbacks_, {});
  const nb::object error = std::move(error_);
  error_moved_ = false;
  if (!result_ref_ || shared_) return;
  const PyRef released_result = std::exchange(result_ref_, {});
  const auto promise = std::exchange(promise_, std::nullopt);
  const auto cleared_error =
      std::make_exception_ptr(Aborted("this future was part of a cycle that the garbage collector took apart"));
  const auto future = std::exchange(future_, Future<PyRef>::failed(cleared_error));
}

nb::object make_future(Future<PyRef> future) { return new_future(std::move(future)); }

Future<PyRef> share_future(nb::handle future) {
  if (!nb::isinstance<PyFuture>(future)) throw nb::type_error("expected a hookline.Future");
  return nb::inst_ptr<PyFuture>(future)->share();
}

}  // namespace hookline::python
