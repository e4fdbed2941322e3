// Python objects in native code: references that any thread may drop, and the one way for native threads into Python.
#pragma once

#include <memory>
#include <utility>

#include <nanobind/nanobind.h>

#include <hookline/core/executor.hpp>

namespace hookline::python {

namespace nb = nanobind;

/// Whether this thread holds the GIL of an interpreter that is still there.
bool holds_gil() noexcept;

/// Whether Python is on its way out: native threads are no longer let in, and what waits should give up.
bool closing() noexcept;

/// A counted reference to a Python object. Copying, moving and dropping are safe on any thread, with or without the
/// GIL, under any lock, also while Python ends: a drop without the GIL leaves the release to the callback thread, and
/// after the end of Python the object is leaked on purpose. Only the constructor from an object and object() need the
/// GIL.
class PyRef {
 public:
  PyRef() = default;
  explicit PyRef(nb::object object);

  /// Borrowed: valid while this or a copy lives.
  nb::handle get() const noexcept { return object_.get(); }
  nb::object object() const { return nb::borrow(object_.get()); }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  /// For native code that keeps the object alive without knowing what it is, under the same rules.
  std::shared_ptr<void> owner() const noexcept { return object_; }
  /// The object behind what owner() gave, borrowed; null for any other pointer.
  static nb::handle object_of(const std::shared_ptr<void>& owner) noexcept;

 private:
  std::shared_ptr<PyObject> object_;
};

/// A stay in Python: takes the GIL unless this thread has it, and keeps the exit of Python waiting meanwhile. False
/// where Python is closing; then nothing of Python may be touched. A thread's state is kept until the thread ends, so
/// that later stays are cheap; for its end the thread takes the GIL once more. So whoever joins a thread that has been
/// in Python, in a destructor too, must not hold the GIL.
class GilStay {
 public:
  GilStay() noexcept;
  GilStay(const GilStay&) = delete;
  GilStay& operator=(const GilStay&) = delete;
  ~GilStay();
  explicit operator bool() const noexcept { return kind_ != Kind::refused; }

 private:
  enum class Kind { refused, nested, kept, ensured } kind_;
  PyGILState_STATE state_{};
};

/// Calls `f` with the GIL and returns true, or returns false without calling it where Python is closing.
template <class F>
bool with_gil(F&& f) {
  const GilStay stay;
  if (!stay) return false;
  std::forward<F>(f)();
  return true;
}

/// The process's callback thread, which keeps its thread state: for Python callbacks that no group has a thread for.
/// Null while Python closes.
std::shared_ptr<Executor> callback_executor();

/// A thread beside it for calls that may take long, such as a wait(): objects are released on the other one. Null while
/// Python closes.
std::shared_ptr<Executor> waiting_executor();

}  // namespace hookline::python
