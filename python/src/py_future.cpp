// Implements PyFuture.
#include "py_future.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "gil_release.hpp"

namespace hookline::python {
namespace {

/// The interval at which a waiting thread checks for signals and finalization.
constexpr Milliseconds kPollInterval{100};

/// The queue of futures whose callbacks the loop in run_callbacks() runs next, so that long chains do not recurse
/// deeply.
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
  // Without the GIL: continuations of C++ waiters run here and may block, and the last reference to a native future may
  // join a thread that needs the GIL.
  if (shared_ || !promise_) {
    const GilRelease released;
    promise_.reset();
    future_ = Future<PyRef>::ready();
  }
}

nb::object PyFuture::wait(std::optional<TimeoutArg> timeout) {
  const Milliseconds limit = timeout ? *timeout : kDefaultTimeout;
  const auto deadline = deadline_after(limit);
  // On a callback thread, runs the thread's tasks while waiting: one of them may complete this future. The empty task
  // ends the wait for a task.
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
    if (is_finalizing() && !done())
      throw Aborted("Future.wait: Python is finalizing; this future will not be completed");
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
  if (!done()) throw InvalidArgument("Future.exception: this future is not done. Call wait() first.");
  const std::exception_ptr error = future_.error();
  if (!error) return nb::none();
  if (error_moved_) return error_;
  if (is_python_exception(error)) {
    if (promise_ || shared_) return error_to_python(error);
    // The exception's traceback may later refer to this future. The garbage collector must see this cycle.
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
  if (done()) throw InvalidArgument(std::string(caller) + ": this future is already completed");
}

void PyFuture::set_result(nb::object result) {
  check_pending("Future.set_result");
  if (!complete(PyRef(std::move(result)), nullptr)) check_pending("Future.set_result");
}

void PyFuture::set_exception(nb::handle exception) {
  check_pending("Future.set_exception");
  if (!PyExceptionInstance_Check(exception.ptr())) {
    throw nb::type_error("Future.set_exception: expected an exception object, such as ValueError('text')");
  }
  PyRef reference(nb::borrow(exception));
  if (!complete(reference, error_from_python(reference))) check_pending("Future.set_exception");
}

// Continuations run inside the completing call; native continuations must run without the GIL.
bool PyFuture::complete(PyRef reference, std::exception_ptr error) {
  const auto finish = [&] {
    return error ? promise_->try_set_error(std::move(error)) : promise_->try_set_value(std::move(reference));
  };
  if (shared_) {
    // Native continuations may wait for other futures, whose callbacks must then run immediately and not in the loop of
    // run_callbacks().
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
      if (child.done()) continue;  // completed by set_result() or set_exception()
      deferred = &ready;
      if (failure) child.complete(failure, error_from_python(failure));
      else if (!callback.function.is_valid()) future.forward_outcome_to(child);
      else child.resolve_with(std::move(result), callback.child);
      deferred = nullptr;
    }
  }
}

// Runs the callbacks with a failed replacement future, since this object is being destroyed.
void PyFuture::abandon(std::vector<Callback> callbacks) {
  if (callbacks.empty() || is_finalizing()) return;
  const auto error =
      std::make_exception_ptr(Aborted("the future that this one depends on was destroyed before completion"));
  const nb::error_scope current_error;
  const nb::object replacement = new_future(Future<PyRef>::failed(error));
  PyFuture& future = *nb::inst_ptr<PyFuture>(replacement);
  future.callbacks_ = std::move(callbacks);
  future.run_callbacks();
}

// The garbage collector calls this before it clears any object of a cycle.
void PyFuture::finalize() {
  if (!promise_ || done() || (callbacks_.empty() && !shared_) || is_finalizing()) return;
  const nb::error_scope current_error;
  complete(PyRef(), std::make_exception_ptr(Aborted("this future was destroyed before completion")));
}

void PyFuture::resolve_with(nb::object result, nb::handle self) {
  if (!nb::isinstance<PyFuture>(result)) {
    complete(PyRef(std::move(result)), nullptr);
  } else if (result.is(self)) {
    complete(PyRef(), std::make_exception_ptr(
                          InvalidArgument("Future.then: the callback returned the future that depends on it")));
  } else {
    nb::inst_ptr<PyFuture>(result)->add({nb::object(), nb::borrow(self)});
  }
}

// Creates a new reference for the child: the garbage collector attributes each PyRef to one future.
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

// Releasing references runs Python code, so this object must be consistent first.
void PyFuture::clear() {
  // finalize() has run all callbacks. Callbacks added since may refer to objects that are already cleared, so they are
  // dropped.
  const std::vector<Callback> released_callbacks = std::exchange(callbacks_, {});
  const nb::object error = std::move(error_);
  error_moved_ = false;
  if (!result_ref_ || shared_) return;
  const PyRef released_result = std::exchange(result_ref_, {});
  const auto promise = std::exchange(promise_, std::nullopt);
  const auto cleared_error =
      std::make_exception_ptr(Aborted("this future was part of a cycle that the garbage collector cleared"));
  const auto future = std::exchange(future_, Future<PyRef>::failed(cleared_error));
}

nb::object make_future(Future<PyRef> future) { return new_future(std::move(future)); }

Future<PyRef> share_future(nb::handle future) {
  if (!nb::isinstance<PyFuture>(future)) throw nb::type_error("expected a hookline.Future");
  return nb::inst_ptr<PyFuture>(future)->share();
}

}  // namespace hookline::python
