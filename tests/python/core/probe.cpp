// Native helpers for the Python tests: errors, futures, threads, and a group that forwards to another group.
#include <atomic>
#include <mutex>
#include <thread>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <hookline/group/decorator.hpp>

#include "bindings.hpp"
#include "py_error.hpp"
#include "py_future.hpp"
#include "py_group.hpp"
#include "py_object.hpp"

namespace hookline::python {
namespace {

std::exception_ptr error_of(const std::string& kind, const std::string& message, std::exception_ptr cause) {
  if (kind == "InvalidArgument") return std::make_exception_ptr(InvalidArgument(message, cause));
  if (kind == "Unsupported") return std::make_exception_ptr(Unsupported(message, cause));
  if (kind == "Timeout") return std::make_exception_ptr(Timeout(message, cause));
  if (kind == "PeerLost") return std::make_exception_ptr(PeerLost(message, cause));
  if (kind == "Mismatch") return std::make_exception_ptr(Mismatch(message, cause));
  if (kind == "Aborted") return std::make_exception_ptr(Aborted(message, cause));
  if (kind == "ResourceError") return std::make_exception_ptr(ResourceError(message, cause));
  if (kind == "Error") return std::make_exception_ptr(Error(message, cause));
  return std::make_exception_ptr(std::runtime_error(message));
}

void throw_with_ranks(const std::vector<int>& ranks) { throw PeerLost("ranks are gone", ranks); }

/// Returns the ranks that C++ sees when the callable raises.
std::vector<int> caught_ranks(const nb::callable& f) {
  try {
    with_translated_errors([&] { f(); });
  } catch (const Error& e) {
    return e.ranks();
  }
  return {};
}

/// Throws an error of the first kind, whose cause is an error of the second kind, and so on.
void throw_chain(const std::vector<std::string>& kinds) {
  std::exception_ptr error;
  for (std::size_t i = kinds.size(); i-- > 0;) error = error_of(kinds[i], "number " + std::to_string(i), error);
  std::rethrow_exception(error);
}

/// Throws Aborted, caused by what the callable raises.
void throw_caused_by(const nb::callable& f) {
  try {
    with_translated_errors([&] { f(); });
  } catch (...) {
    throw Aborted("the hook failed", std::current_exception());
  }
}

/// Returns the type and the message of the C++ exception if the callable raises.
std::string caught(const nb::callable& f) {
  try {
    with_translated_errors([&] { f(); });
  } catch (const Timeout& e) {
    return std::string("Timeout|") + e.what();
  } catch (const PeerLost& e) {
    return std::string("PeerLost|") + e.what();
  } catch (const Error& e) {
    return std::string("Error|") + e.what();
  }
  return "nothing";
}

/// An error that went through C++, was stored, copied and thrown on another thread.
void rethrow_on_other_thread(const nb::callable& f) {
  std::exception_ptr stored;
  try {
    with_translated_errors([&] { f(); });
  } catch (...) {
    stored = std::current_exception();
  }
  const nb::gil_scoped_release released;
  std::thread([&] {
    try {
      std::rethrow_exception(stored);
    } catch (const Error&) {
      stored = std::current_exception();
    }
  }).join();
  if (stored) std::rethrow_exception(stored);
}

/// The promise of a native future of int, completed on a native thread.
class Completer {
 public:
  explicit Completer(bool on_executor)
      : executor_(on_executor ? std::make_shared<ThreadExecutor>("probe") : nullptr), promise_(executor_) {}

  ~Completer() {
    const nb::gil_scoped_release released;  // the executor is joined here
    executor_.reset();
    promise_ = Promise<int>();
  }

  nb::object future() {
    return make_future(promise_.get_future(), [](int value) -> nb::object {
      if (value < 0) throw nb::value_error("negative");
      return nb::int_(value);
    });
  }
  void complete(int value) {
    const nb::gil_scoped_release released;
    std::thread([&] { promise_.set_value(value); }).join();
  }
  void fail(const std::string& kind, const std::string& message) {
    const nb::gil_scoped_release released;
    std::thread([&] { promise_.set_error(error_of(kind, message, nullptr)); }).join();
  }

 private:
  std::shared_ptr<Executor> executor_;
  Promise<int> promise_;
};

/// Waits in C++, without the GIL, for a Python future. Returns the value, or the type of the error as text.
nb::object wait_without_gil(nb::handle future, double seconds) {
  const Future<PyRef> shared = share_future(future);
  PyRef result;
  std::string failure;
  {
    const nb::gil_scoped_release released;
    try {
      result = shared.wait(TimeoutArg{seconds});
    } catch (const Aborted&) {
      failure = "Aborted";
    } catch (const Timeout&) {
      failure = "Timeout";
    } catch (const Error&) {
      failure = "Error";
    }
  }
  return failure.empty() ? result.object() : nb::object(nb::str(failure.c_str()));
}

/// Copies and drops a reference on a native thread, under a lock that a thread with the GIL waits for.
void drop_on_other_thread(nb::object object) {
  std::mutex mutex;
  std::atomic<bool> locked = false;
  PyRef reference(std::move(object));
  std::thread thread([&mutex, &locked, reference = std::move(reference)]() mutable {
    const std::lock_guard lock(mutex);
    locked = true;
    locked.notify_one();
    const PyRef copy = reference;
    reference = PyRef();
  });
  locked.wait(false);
  {
    const std::lock_guard lock(mutex);
  }  // takes the lock while holding the GIL: the thread that drops the reference must not need the GIL
  thread.join();
}

/// Starts native threads that call into Python and drop references until the exiting interpreter rejects them.
void hammer(int threads, nb::object callback) {
  const PyRef shared(std::move(callback));
  for (int i = 0; i < threads; ++i) {
    std::thread([shared] {
      while (with_gil([&] { PyRef(shared.object()(1)); })) {
        PyRef fresh;
        with_gil([&] { fresh = PyRef(nb::list()); });
      }
    }).detach();
  }
}

/// Returns a native group that forwards every call to `group`.
std::shared_ptr<ProcessGroup> forward_through_cpp(nb::handle group) {
  return make_wrapper_of(group,
                         [](std::shared_ptr<ProcessGroup> inner) { return std::make_shared<GroupDecorator>(inner); });
}

}  // namespace

void bind_probe(nb::module_& m) {
  nb::module_ probe = m.def_submodule("_probe");
  probe.def("throw_chain", &throw_chain);
  probe.def("throw_with_ranks", &throw_with_ranks);
  probe.def("caught_ranks", &caught_ranks);
  probe.def("throw_caused_by", &throw_caused_by);
  probe.def("caught", &caught);
  probe.def("rethrow_on_other_thread", &rethrow_on_other_thread);
  probe.def("wait_without_gil", &wait_without_gil);
  probe.def("drop_on_other_thread", &drop_on_other_thread);
  probe.def("hammer", &hammer);
  probe.def("forward_through_cpp", &forward_through_cpp, nb::arg("group").none());
  nb::class_<Completer>(probe, "Completer")
      .def(nb::init<bool>(), nb::arg("on_executor") = false)
      .def("future", &Completer::future)
      .def("complete", &Completer::complete)
      .def("fail", &Completer::fail);
}

}  // namespace hookline::python
