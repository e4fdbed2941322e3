// The Python class Future: an outcome kept in a Future<PyRef>, and the callbacks that wait for it.
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

/// Everything here needs the GIL, which also guards the members; only the future inside may be completed without it.
///
/// Callbacks hang on the Python object, not on the native future, so that the garbage collector sees them. A future
/// that Python completes owns the promise, and a child made by `then` is owned by its parent's callback: dropping the
/// object is an outcome like any other, Aborted, for the callbacks, the children and whoever waits in C++. A future
/// that native code completes is kept alive by it while there are callbacks.
class PyFuture {
 public:
  /// One that Python completes.
  PyFuture();
  /// One that native code completes.
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

  /// The outcome for C++, which may keep it and wait for it without the GIL.
  Future<PyRef> share();

  int traverse(visitproc visit, void* arg) const;
  void finalize();
  void clear();

 private:
  /// With no callback the outcome itself is handed to the child.
  struct Waiting {
    nb::object callback;
    nb::object child;
    CallContext context = current_context();  // a hook's callbacks start operations in its lane
  };

  void add(Waiting waiting);
  void run_callbacks();
  static void abandon(std::vector<Waiting> waiting);
  void take_over(nb::object result, nb::handle self);
  void pass_outcome_to(PyFuture& child) const;
  bool complete(PyRef reference, std::exception_ptr error);
  void check_open(const char* caller) const;

  std::optional<Promise<PyRef>> promise_;
  Future<PyRef> future_;
  nb::object error_;                 // what a native error became, so that it is the same object each time
  PyRef own_;                        // the reference inside future_, where nothing else holds a copy of it
  bool shared_ = false;              // C++ has a copy of future_
  bool error_moved_ = false;         // future_ no longer has the error: error_ does
  bool scheduled_ = false;           // a run of the callbacks is under way
  std::shared_ptr<PyFuture*> link_;  // for the continuation: null once this object is gone
  std::vector<Waiting> callbacks_;   // last, so that children are aborted before the promise is dropped
};

/// A Python Future of a native one that is not shared with anybody else's Python Future.
nb::object make_future(Future<PyRef> future);

/// The same of any Future: `convert(value)` runs with the GIL where the continuations of `future` run, and gives an
/// nb::object; of a Future<void> comes None. Errors keep their type.
template <class T, class F>
nb::object make_future(const Future<T>& future, F convert) {
  return make_future(future.then([convert = std::move(convert)](const Future<T>& done) mutable {
    const core::Stored<T> value = [&] {
      if constexpr (std::is_void_v<T>) return done.value(), std::monostate();
      else return done.value();
    }();
    return in_python("the result of a future was not handed over", [&] { return PyRef(convert(value)); });
  }));
}

/// The native side of a Python Future. Throws nb::type_error for another type.
Future<PyRef> share_future(nb::handle future);

}  // namespace hookline::python
