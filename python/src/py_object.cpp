// The gate between native threads and the interpreter, and its closing at exit.
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

/// Native threads are inside under the shared lock; the exit handler takes the unique one and thereby waits for them.
struct Gate {
  std::atomic<bool> finalizing = false;
  std::atomic<bool> open = true;
  std::atomic<std::thread::id> finalizing_thread;  // the thread that ends Python, and may go on
  std::shared_mutex inside_mutex;

  std::mutex mutex;  // guards what is below; never held while waiting for the GIL
  std::shared_ptr<ThreadExecutor> callback_thread;
  std::shared_ptr<ThreadExecutor> blocking_thread;
  std::vector<PyObject*> deferred_releases;  // dropped while the callback thread was ending
};

std::atomic<Gate*> gate = new Gate;  // never destroyed: threads may come by after static destructors have run

thread_local int acquire_depth = 0;  // a nested shared lock would deadlock with a waiting exit handler

/// Ends the thread state that a native thread keeps between its stays.
struct CachedThreadState {
  PyThreadState* state = nullptr;
  ~CachedThreadState() {
    if (!state) return;
    Gate* g = gate;
    const std::shared_lock lock(g->inside_mutex);
    if (!g->open) return;  // Python ends it
    PyEval_RestoreThread(std::exchange(state, nullptr));
    PyGILState_Release(PyGILState_UNLOCKED);
  }
};
thread_local CachedThreadState cached_thread_state;

/// Under the mutex.
const std::shared_ptr<ThreadExecutor>& start_if_needed(std::shared_ptr<ThreadExecutor>& thread, const char* name) {
  if (!thread) thread = std::make_shared<ThreadExecutor>(name);
  return thread;
}
const std::shared_ptr<ThreadExecutor>& callback_thread_of(Gate& g) {
  return start_if_needed(g.callback_thread, "hookline-python");
}

/// Waits until all that was posted has run: others may still hold the thread, so that letting go of it would not wait.
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
    // The thread that ends Python may take the GIL back while it has a thread state; for others it is leaked on
    // purpose.
    if (g->finalizing_thread.load() != std::this_thread::get_id() || !PyGILState_GetThisThreadState()) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DECREF(object);
    PyGILState_Release(state);
    return;
  }
  const std::lock_guard lock(g->mutex);  // the exit handler sees to what is posted or late, and nothing falls between
  if (g->finalizing) {
    g->deferred_releases.push_back(object);
  } else {
    callback_thread_of(*g)->post([object] { with_gil([object] { Py_DECREF(object); }); });
  }
}

/// Runs at exit with the GIL. What the callback thread was given is done first; then nobody is let in.
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
    drain(std::move(blocking_thread));  // what it does has callbacks on the other one
    drain(std::move(callback_thread));
    g->finalizing_thread = std::this_thread::get_id();
    g->open = false;
    const std::unique_lock lock(g->inside_mutex);
    const std::lock_guard state_lock(g->mutex);
    deferred_releases.swap(g->deferred_releases);
  }
  for (PyObject* object : deferred_releases) Py_DECREF(object);
}

// A forked child has neither the threads nor the holders of the locks: it begins with a new gate. What those threads
// held is never let go of there, which is no leak to tell the user about.
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

// The exit handler waits for those who are on their way back, and nobody sets out after it.
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
  } else if (PyGILState_GetThisThreadState()) {  // one of Python's own threads, which has released the GIL
    state_ = PyGILState_Ensure();
    kind_ = Kind::ensured;
  } else {
    PyGILState_Ensure();  // released when the thread ends
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
