// Python objects in native code: references that any thread can drop, and GIL acquisition from native threads.
#pragma once

#include <memory>
#include <utility>

#include <nanobind/nanobind.h>

#include <hookline/core/executor.hpp>

namespace hookline::python {

namespace nb = nanobind;

/// True if this thread holds the GIL and the interpreter is alive.
bool holds_gil() noexcept;

/// True during Python's finalization: native threads can no longer acquire the GIL, and waits must end.
bool is_finalizing() noexcept;

/// A counted reference to a Python object. Copying, moving and destruction are safe on any thread, with or without the
/// GIL, under any lock, also during finalization. Without the GIL, the callback thread releases the object; after
/// finalization, the object is leaked on purpose. Only the constructor from an object and object() need the GIL.
class PyRef {
 public:
  PyRef() = default;
  explicit PyRef(nb::object object);

  /// Returns a borrowed reference, valid while this or a copy lives.
  nb::handle get() const noexcept { return object_.get(); }
  nb::object object() const { return nb::borrow(object_.get()); }
  explicit operator bool() const noexcept { return object_ != nullptr; }
  /// Returns an opaque owner of the object for native code, with the same thread safety.
  std::shared_ptr<void> owner() const noexcept { return object_; }
  /// Returns the object of an owner() as a borrowed reference; null for any other pointer.
  static nb::handle object_of(const std::shared_ptr<void>& owner) noexcept;

 private:
  std::shared_ptr<PyObject> object_;
};

/// Acquires the GIL for its lifetime, unless this thread has it, and blocks Python's exit handler meanwhile. False
/// during finalization; then the thread must not use Python. The thread state is cached until the thread ends, so that
/// later acquisitions are cheap. The exiting thread needs the GIL once more to delete it: so never join a thread that
/// has used Python while holding the GIL.
class GilAcquire {
 public:
  GilAcquire() noexcept;
  GilAcquire(const GilAcquire&) = delete;
  GilAcquire& operator=(const GilAcquire&) = delete;
  ~GilAcquire();
  explicit operator bool() const noexcept { return kind_ != Kind::refused; }

 private:
  enum class Kind { refused, nested, cached, ensured } kind_;
  PyGILState_STATE state_{};
};

/// Calls `f` with the GIL and returns true. During finalization, returns false without calling it.
template <class F>
bool with_gil(F&& f) {
  const GilAcquire gil;
  if (!gil) return false;
  std::forward<F>(f)();
  return true;
}

/// Returns the callback thread of the process, for Python callbacks that belong to no group. Null during finalization.
std::shared_ptr<Executor> callback_executor();

/// Returns a second thread for calls that may block, such as wait(), so that they do not delay the release of objects
/// on the callback thread. Null during finalization.
std::shared_ptr<Executor> blocking_executor();

}  // namespace hookline::python
