// The gate that native threads pass to use the interpreter; it closes at Python's exit.
#include "py_object.hpp"

#include <atomic>
#include <future>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>
#include <vector>

#include <pthread.h>
#include <unistd.h>

#include "bindings.hpp"
#include "gil_release.hpp"

namespace hookline::python {
namespace {

/// Native threads hold the shared lock while they use Python. The exit handler takes the unique lock, and so waits for
/// them.
struct Gate {
  std::atomic<bool> finalizing = false;
  std::atomic<bool> open = true;
  std::atomic<std::thread::id> finalizing_thread;  // may still use Python
  std::shared_mutex inside_mutex;

  std::mutex mutex;  // guards the members below; never held while waiting for the GIL
  std::shared_ptr<ThreadExecutor> callback_thread;
  std::shared_ptr<ThreadExecutor> blocking_thread;
  std::vector<PyObject*> deferred_releases;  // references dropped during finalization
};

std::atomic<Gate*> gate = new Gate;  // never destroyed: threads may use it after static destructors have run

thread_local int acquire_depth = 0;  // a nested shared lock would deadlock with a waiting exit handler

/// Caches the Python thread state of a native thread between acquisitions of the GIL, and deletes it at thread exit.
struct CachedThreadState {
  PyThreadState* state = nullptr;
  ~CachedThreadState() {
    if (!state) return;
    Gate* g = gate;
    const std::shared_lock lock(g->inside_mutex);
    if (!g->open) return;  // finalization deletes it
    PyEval_RestoreThread(std::exchange(state, nullptr));
    PyGILState_Release(PyGILState_UNLOCKED);
  }
};
thread_local CachedThreadState cached_thread_state;

/// Requires the mutex.
const std::shared_ptr<ThreadExecutor>& start_if_needed(std::shared_ptr<ThreadExecutor>& thread, const char* name) {
  if (!thread) thread = std::make_shared<ThreadExecutor>(name);
  return thread;
}
const std::shared_ptr<ThreadExecutor>& callback_thread_of(Gate& g) {
  return start_if_needed(g.callback_thread, "hookline-python");
}

/// Waits until all posted tasks have run. Destroying `thread` would not wait, since others may share it.
void drain(std::shared_ptr<ThreadExecutor> thread) {
  if (!thread) return;
  std::promise<void> all_run;
  thread->post([&] { all_run.set_value(); });
  all_run.get_future().wait();
}

void release(PyObject* object) {
  if (holds_gil()) {
    Py_DECREF(object);
    return;
  }
  Gate* g = gate;
  if (!g->open) {
    // The finalizing thread can still acquire the GIL while it has a thread state. Other threads leak the object.
    if (g->finalizing_thread.load() != std::this_thread::get_id() || !PyGILState_GetThisThreadState()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(object);
    PyGILState_Release(state);
    return;
  }
  const std::lock_guard lock(
      g->mutex);  // atomic with close_gate(): every object is either posted before the drain or in deferred_releases
  if (g->finalizing) {
    g->deferred_releases.push_back(object);
  } else {
    callback_thread_of(*g)->post([object] { with_gil([object] { Py_DECREF(object); }); });
  }
}

/// Exit handler, called with the GIL. Drains the callback threads, then closes the gate.
void close_gate() {
  Gate* g = gate;
  std::vector<PyObject*> deferred_releases;
  {
    const nb::gil_scoped_release released;
    std::shared_ptr<ThreadExecutor> callback_thread;
    std::shared_ptr<ThreadExecutor> blocking_thread;
    {
      const std::lock_guard lock(g->mutex);
      g->finalizing = true;
      callback_thread = std::move(g->callback_thread);
      blocking_thread = std::move(g->blocking_thread);
    }
    drain(std::move(blocking_thread));  // first: its tasks post to the callback thread
    drain(std::move(callback_thread));
    g->finalizing_thread = std::this_thread::get_id();
    g->open = false;
    const std::unique_lock lock(g->inside_mutex);
    const std::lock_guard state_lock(g->mutex);
    deferred_releases.swap(g->deferred_releases);
  }
  for (PyObject* object : deferred_releases) Py_DECREF(object);
}

// A forked child has none of the parent's threads, which may hold the locks: it starts with a new gate. References of
// those threads are never released in the child, so leak warnings are disabled.
void renew_gate_in_child() {
  nb::set_leak_warnings(false);
  if (gate.load()->open) gate = new Gate;
  acquire_depth = 0;
}

}  // namespace

bool holds_gil() noexcept { return nb::is_alive() && PyGILState_Check(); }

bool is_finalizing() noexcept { return gate.load()->finalizing; }

PyRef::PyRef(nb::object object) : object_(object.release().ptr(), release) {}

nb::handle PyRef::object_of(const std::shared_ptr<void>& owner) noexcept {
  auto* const deleter = std::get_deleter<void (*)(PyObject*)>(owner);
  return deleter && *deleter == &release ? nb::handle(static_cast<PyObject*>(owner.get())) : nb::handle();
}

// Threads reacquire the GIL under the shared lock, so the exit handler waits for them. After the gate is closed, only
// the finalizing thread passes; others block forever.
GilRelease::~GilRelease() {
  Gate* g = gate;
  const bool inside = acquire_depth > 0;
  if (!inside) g->inside_mutex.lock_shared();
  if (!inside && !g->open && g->finalizing_thread.load() != std::this_thread::get_id()) {
    g->inside_mutex.unlock_shared();
    for (;;) pause();
  }
  PyEval_RestoreThread(state_);
  if (!inside) g->inside_mutex.unlock_shared();
}

GilAcquire::GilAcquire() noexcept : kind_(Kind::nested) {
  if (holds_gil()) return;
  Gate* g = gate;
  if (acquire_depth == 0) g->inside_mutex.lock_shared();
  if (!g->open) {
    if (acquire_depth == 0) g->inside_mutex.unlock_shared();
    kind_ = Kind::refused;
    return;
  }
  ++acquire_depth;
  if (cached_thread_state.state) {
    PyEval_RestoreThread(cached_thread_state.state);
    kind_ = Kind::cached;
  } else if (PyGILState_GetThisThreadState()) {  // a thread created by Python that has released the GIL
    state_ = PyGILState_Ensure();
    kind_ = Kind::ensured;
  } else {
    PyGILState_Ensure();  // released at thread exit
    cached_thread_state.state = PyThreadState_Get();
    kind_ = Kind::cached;
  }
}

GilAcquire::~GilAcquire() {
  if (kind_ == Kind::cached) PyEval_SaveThread();
  if (kind_ == Kind::ensured) PyGILState_Release(state_);
  if ((kind_ == Kind::cached || kind_ == Kind::ensured) && --acquire_depth == 0)
    gate.load()->inside_mutex.unlock_shared();
}

std::shared_ptr<Executor> callback_executor() {
  Gate* g = gate;
  const std::lock_guard lock(g->mutex);
  if (g->finalizing) return nullptr;
  return callback_thread_of(*g);
}

std::shared_ptr<Executor> blocking_executor() {
  Gate* g = gate;
  const std::lock_guard lock(g->mutex);
  if (g->finalizing) return nullptr;
  return start_if_needed(g->blocking_thread, "hookline-pywait");
}

void bind_exit(nb::module_&) {
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&close_gate));
  pthread_atfork(nullptr, nullptr, &renew_gate_in_child);
}

}  // namespace hookline::python
