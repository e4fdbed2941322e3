// Native futures of Python futures, with a timeout at the operation's deadline.
#include "work_future.hpp"

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>

#include "core/thread.hpp"
#include "gil_release.hpp"
#include "py_error.hpp"
#include "py_future.hpp"
#include "tensor_list.hpp"

namespace hookline::python {
namespace {

using Tensors = std::vector<Tensor>;

/// A Python future that has not completed yet.
struct PendingFuture {
  explicit PendingFuture(std::string text) : call_site(std::move(text)) {}
  Promise<Tensors> promise;
  const std::string call_site;
  std::mutex mutex;
  std::vector<PyRef> references;

  void release_references() {
    std::vector<PyRef> released;
    const std::lock_guard lock(mutex);
    released.swap(references);
  }
};

/// A thread that fails pending futures at their deadlines.
class DeadlineTimer {
 public:
  using Key = std::pair<Clock::time_point, const PendingFuture*>;

  void add(Clock::time_point deadline, std::shared_ptr<PendingFuture> pending) {
    const std::lock_guard lock(mutex_);
    const Key key{deadline, pending.get()};
    const bool first = pending_.empty() || key < pending_.begin()->first;
    pending_.emplace(key, std::move(pending));
    if (!thread_.joinable() && !stopped_) {
      thread_ = core::start_thread("hookline-timer", [this] { run(); });
    } else if (first) {
      wake_.notify_one();
    }
  }

  void remove(Clock::time_point deadline, const PendingFuture* pending) {
    const std::lock_guard lock(mutex_);
    pending_.erase({deadline, pending});
  }

  void stop() {
    std::map<Key, std::shared_ptr<PendingFuture>> remaining;
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
      remaining.swap(pending_);
      wake_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    for (const auto& [key, pending] : remaining) {
      pending->promise.try_set_error(std::make_exception_ptr(
          Aborted(pending->call_site + ": Python is finalizing; this future will not be completed")));
      pending->release_references();
    }
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!stopped_) {
      if (pending_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const auto next = pending_.begin()->first.first;
      if (Clock::now() < next) {
        wake_.wait_until(lock, next);
        continue;
      }
      const auto expired = pending_.extract(pending_.begin()).mapped();
      lock.unlock();
      expired->promise.try_set_error(std::make_exception_ptr(
          Timeout(expired->call_site + ": the future was not done when the operation's time was up")));
      expired->release_references();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<Key, std::shared_ptr<PendingFuture>> pending_;
  std::thread thread_;
  bool stopped_ = false;
};

std::atomic<DeadlineTimer*> timer = nullptr;  // never destroyed: its thread may outlive static destructors

// A forked child does not have the thread, which may hold the lock, so it starts with a new timer.
DeadlineTimer& deadline_timer() {
  static std::once_flag once;
  std::call_once(once, [] {
    timer = new DeadlineTimer;
    pthread_atfork(nullptr, nullptr, [] { timer = new DeadlineTimer; });
  });
  return *timer.load();
}

void collect(nb::handle value, Tensors& into) {
  if (!is_sequence(value)) {
    into.push_back(to_tensor(value));
    return;
  }
  for (const nb::handle item : nb::borrow<nb::object>(value)) collect(item, into);
}

Tensors tensors_of_value(nb::handle value, const std::string& call_site, const Tensors& outputs) {
  if (value.is_none()) return outputs;
  Tensors tensors;
  try {
    collect(value, tensors);
  } catch (const nb::builtin_exception&) {
    throw nb::type_error((call_site + ": the future must be completed with arrays or None, and this one has " +
                          nb::type_name(value.type()).c_str())
                             .c_str());
  }
  return tensors;
}

/// Adds the call site to an error: as a prefix of the C++ message, and as a note of the Python exception.
std::exception_ptr with_note(const std::exception_ptr& error, const std::string& call_site) {
  const nb::object exception = error_to_python(error);
  try {
    if (nb::hasattr(exception, "add_note")) exception.attr("add_note")("in " + call_site);
  } catch (const nb::python_error&) {  // the error itself matters more
  }
  return error_from_python(PyRef(exception), call_site + ": ");
}

/// Completes a pending future with the result or error of `read`. Needs the GIL.
template <class F>
void finish(const std::shared_ptr<PendingFuture>& pending, Clock::time_point deadline, F read) {
  Tensors tensors;
  std::exception_ptr error;
  try {
    with_translated_errors([&] { tensors = read(); });
  } catch (...) {
    error = with_note(std::current_exception(), pending->call_site);
  }
  deadline_timer().remove(deadline, pending.get());
  {
    const GilRelease released;  // continuations run without the GIL
    if (error) pending->promise.try_set_error(error);
    else pending->promise.try_set_value(std::move(tensors));
  }
  pending->release_references();
}

}  // namespace

bool is_future(nb::handle object) {
  return nb::isinstance<PyFuture>(object) ||
         (nb::hasattr(object, "add_done_callback") && (nb::hasattr(object, "value") || nb::hasattr(object, "result")));
}

Future<Tensors> tensors_of_future(nb::handle future, std::string call_site, PyRef keep_alive, Tensors outputs,
                                  Clock::time_point deadline) {
  auto pending = std::make_shared<PendingFuture>(std::move(call_site));
  Future<Tensors> result = pending->promise.get_future();
  pending->references.push_back(std::move(keep_alive));
  pending->references.emplace_back(nb::borrow(future));
  deadline_timer().add(deadline, pending);
  // A callback instead of the shared native future, so that the garbage collector sees the value. torch futures have
  // value() as hookline futures do; concurrent.futures have result(), and keep the callback after completion. So the
  // callback drops its state, because an error's traceback may lead back to the future.
  const auto slot = std::make_shared<std::shared_ptr<PendingFuture>>(std::move(pending));
  future.attr("add_done_callback")(
      nb::cpp_function([slot, deadline, outputs = std::move(outputs)](const nb::object& done) {
        const auto completed = std::exchange(*slot, nullptr);
        if (!completed) return;  // some futures call it twice
        finish(completed, deadline, [&] {
          const nb::object value = nb::hasattr(done, "value") ? done.attr("value")() : done.attr("result")();
          return tensors_of_value(value, completed->call_site, outputs);
        });
      }));
  return result;
}

void stop_deadline_timer() {
  const GilRelease released;
  deadline_timer().stop();
}

}  // namespace hookline::python
