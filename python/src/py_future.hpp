// The Python class Future: a Future<PyRef> with its Python callbacks.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/core/future.hpp>

#include "py_error.hpp"
#include "py_object.hpp"
#include "timeout_arg.hpp"

namespace hookline::python {

/// All functions need the GIL, which also guards the members; only the native future may be completed without it.
///
/// Ownership: the Python object owns the callbacks, not the native future, so that the garbage collector sees them. A
/// future that Python completes owns its promise, and a child created by `then` is owned by its parent's callback.
/// Destroying the object completes the future with Aborted for callbacks, children and C++ waiters. A future that
/// native code completes is kept alive by that code while it has callbacks.
class PyFuture {
 public:
  /// A future that Python completes.
  PyFuture();
  /// A future that native code completes.
  explicit PyFuture(Future<PyRef> future);
  PyFuture(const PyFuture&) = delete;
  PyFuture& operator=(const PyFuture&) = delete;
  ~PyFuture();

  bool done() const { return future_.done(); }
  nb::object wait(std::optional<TimeoutArg> timeout);
  nb::object value();
  nb::object exception();
  void set_result(nb::object result);
  void set_exception(nb::handle exception);
  nb::object then(nb::object callback);
  void add_done_callback(nb::object callback);
  std::string repr();

  /// Returns the native future, which C++ may keep and wait for without the GIL.
  Future<PyRef> share();

  int traverse(visitproc visit, void* arg) const;
  void finalize();
  void clear();

 private:
  /// Without a function, forwards the outcome to the child.
  struct Callback {
    nb::object function;
    nb::object child;
    CallContext context = current_context();  // so that callbacks of a hook start operations in its lane
  };

  void add(Callback callback);
  void run_callbacks();
  static void abandon(std::vector<Callback> callbacks);
  void resolve_with(nb::object result, nb::handle self);
  void forward_outcome_to(PyFuture& child) const;
  bool complete(PyRef reference, std::exception_ptr error);
  void check_pending(const char* caller) const;

  std::optional<Promise<PyRef>> promise_;
  Future<PyRef> future_;
  nb::object error_;                      // the translated error, so that each call returns the same object
  PyRef result_ref_;                      // the reference inside future_, if it has no other copy
  bool shared_ = false;                   // C++ has a copy of future_
  bool error_moved_ = false;              // the error was moved from future_ to error_
  bool scheduled_ = false;                // run_callbacks() is pending
  std::shared_ptr<PyFuture*> self_link_;  // for the native continuation: null after this object is destroyed
  std::vector<Callback> callbacks_;       // last, so that children are aborted before the promise is destroyed
};

/// Wraps a native future, which no other Python Future may share.
nb::object make_future(Future<PyRef> future);

/// Wraps any native future. `convert(value)` returns an nb::object; it runs with the GIL on the thread of the future's
/// continuations. Future<void> gives None. Errors keep their type.
template <class T, class F>
nb::object make_future(const Future<T>& future, F convert) {
  return make_future(future.then([convert = std::move(convert)](const Future<T>& done) mutable {
    const core::FutureValue<T> value = [&] {
      if constexpr (std::is_void_v<T>) return done.value(), std::monostate();
      else return done.value();
    }();
    return call_python("converting the result of a future", [&] { return PyRef(convert(value)); });
  }));
}

/// Returns the native future of a Python Future. Throws nb::type_error for another type.
Future<PyRef> share_future(nb::handle future);

}  // namespace hookline::python
