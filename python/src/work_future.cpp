// The outcome of a Python future, or a Timeout: whichever comes first.
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

/// One future that is waited for.
struct Awaited {
  explicit Awaited(std::string text) : where(std::move(text)) {}
  Promise<Tensors> promise;
  const std::string where;
  std::mutex mutex;
  std::vector<PyRef> kept;

  void let_go() {
    std::vector<PyRef> dropped;
    const std::lock_guard lock(mutex);
    dropped.swap(kept);
  }
};

/// A thread that fails what is not done at its deadline.
class Deadlines {
 public:
  using Key = std::pair<Clock::time_point, const Awaited*>;

  void add(Clock::time_point deadline, std::shared_ptr<Awaited> awaited) {
    const std::lock_guard lock(mutex_);
    const Key key{deadline, awaited.get()};
    const bool first = all_.empty() || key < all_.begin()->first;
    all_.emplace(key, std::move(awaited));
    if (!thread_.joinable() && !ended_) {
      thread_ = core::start_thread("hl-deadlines", [this] { run(); });
    } else if (first) {
      wake_.notify_one();
    }
  }

  void remove(Clock::time_point deadline, const Awaited* awaited) {
    const std::lock_guard lock(mutex_);
    all_.erase({deadline, awaited});
  }

  void end() {
    std::map<Key, std::shared_ptr<Awaited>> left;
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      left.swap(all_);
      wake_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
    for (const auto& [key, awaited] : left) {
      awaited->promise.try_set_error(
          std::make_exception_ptr(Aborted(awaited->where + ": Python is ending and nobody will complete this future")));
      awaited->let_go();
    }
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!ended_) {
      if (all_.empty()) {
        wake_.wait(lock);
        continue;
      }
      const auto next = all_.begin()->first.first;
      if (Clock::now() < next) {
        wake_.wait_until(lock, next);
        continue;
      }
      const auto late = all_.extract(all_.begin()).mapped();
      lock.unlock();
      late->promise.try_set_error(
          std::make_exception_ptr(Timeout(late->where + ": the future was not done when the operation's time was up")));
      late->let_go();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::map<Key, std::shared_ptr<Awaited>> all_;
  std::thread thread_;
  bool ended_ = false;
};

std::atomic<Deadlines*> deadlines = nullptr;  // never destroyed: its thread may outlive static destructors

// A forked child has no such thread, and perhaps nobody who would let go of the lock.
Deadlines& the_deadlines() {
  static std::once_flag once;
  std::call_once(once, [] {
    deadlines = new Deadlines;
    pthread_atfork(nullptr, nullptr, [] { deadlines = new Deadlines; });
  });
  return *deadlines.load();
}

void collect(nb::handle value, Tensors& into) {
  if (!is_sequence(value)) {
    into.push_back(to_tensor(value));
    return;
  }
  for (const nb::handle item : nb::borrow<nb::object>(value)) collect(item, into);
}

Tensors tensors_of_value(nb::handle value, const std::string& where, const Tensors& outputs) {
  if (value.is_none()) return outputs;
  Tensors tensors;
  try {
    collect(value, tensors);
  } catch (const nb::builtin_exception&) {
    throw nb::type_error((where + ": the future must be completed with arrays or None, and this one has " +
                          nb::type_name(value.type()).c_str())
                             .c_str());
  }
  return tensors;
}

/// The same error, with the place in its C++ message, and in Python as a note beneath the traceback.
std::exception_ptr noted(const std::exception_ptr& error, const std::string& where) {
  const nb::object exception = error_to_python(error);
  try {
    if (nb::hasattr(exception, "add_note")) exception.attr("add_note")("in " + where);
  } catch (const nb::python_error&) {  // the error itself matters more
  }
  return error_from_python(PyRef(exception), where + ": ");
}

/// Completes with what `read` gives or throws. With the GIL.
template <class F>
void finish(const std::shared_ptr<Awaited>& awaited, Clock::time_point deadline, F read) {
  Tensors tensors;
  std::exception_ptr error;
  try {
    translating_errors([&] { tensors = read(); });
  } catch (...) {
    error = noted(std::current_exception(), awaited->where);
  }
  the_deadlines().remove(deadline, awaited.get());
  {
    const GilRelease released;  // continuations run in here
    if (error) awaited->promise.try_set_error(error);
    else awaited->promise.try_set_value(std::move(tensors));
  }
  awaited->let_go();
}

}  // namespace

bool is_future(nb::handle object) {
  return nb::isinstance<PyFuture>(object) ||
         (nb::hasattr(object, "add_done_callback") && (nb::hasattr(object, "value") || nb::hasattr(object, "result")));
}

Future<Tensors> tensors_of_future(nb::handle future, std::string where, PyRef keep, Tensors outputs,
                                  Clock::time_point deadline) {
  auto awaited = std::make_shared<Awaited>(std::move(where));
  Future<Tensors> result = awaited->promise.get_future();
  awaited->kept.push_back(std::move(keep));
  awaited->kept.emplace_back(nb::borrow(future));
  the_deadlines().add(deadline, awaited);
  // A callback, not a share of the future's state: the garbage collector goes on seeing what is in it. torch's futures
  // have value() as ours do, those of concurrent.futures have result(), and keep the callback, which therefore lets go
  // of the outcome: an error's traceback may lead back to the future.
  const auto slot = std::make_shared<std::shared_ptr<Awaited>>(std::move(awaited));
  future.attr("add_done_callback")(
      nb::cpp_function([slot, deadline, outputs = std::move(outputs)](const nb::object& done) {
        const auto mine = std::exchange(*slot, nullptr);
        if (!mine) return;  // some call it twice
        finish(mine, deadline, [&] {
          const nb::object value = nb::hasattr(done, "value") ? done.attr("value")() : done.attr("result")();
          return tensors_of_value(value, mine->where, outputs);
        });
      }));
  return result;
}

void end_deadlines() {
  const GilRelease released;
  the_deadlines().end();
}

}  // namespace hookline::python
