// Calls of works written in Python.
#include "py_work.hpp"

#include <algorithm>
#include <utility>

#include <nanobind/stl/chrono.h>
#include <nanobind/stl/string.h>

#include <hookline/core/error.hpp>

#include "py_call.hpp"
#include "py_error.hpp"
#include "py_group.hpp"
#include "without_gil.hpp"
#include "work_future.hpp"

namespace hookline::python {
namespace {

/// Returns the constructor argument of a Work.
nb::object constructor_future(nb::handle object) {
  return nb::isinstance<WorkObject>(object) ? nb::inst_ptr<WorkObject>(object)->future : nb::object();
}

}  // namespace

bool work_overrides(nb::handle work, const char* method) {
  if (!nb::isinstance<WorkObject>(work)) return nb::hasattr(work, method);
  return !nb::getattr(work.type(), method).is(nb::getattr(nb::type<WorkObject>(), method));
}

WorkPtr wrap_work(nb::handle group, nb::handle result, WorkOrigin origin) {
  if (nb::isinstance<WorkObject>(result)) {
    if (!nb::inst_ready(result)) {
      PyErr_Format(PyExc_TypeError, "%s.%s() returned a %s whose __init__ has not called super().__init__()",
                   origin.group_class.c_str(), origin.method.c_str(), class_name_of(result).c_str());
      throw nb::python_error();
    }
    if (const WorkPtr& native = nb::inst_ptr<WorkObject>(result)->work) return native;
    return std::make_shared<PyWork>(PyRef(nb::borrow(result)), std::move(origin));
  }
  if (result.is_none() && origin.type == OpType::monitored_barrier) {
    return make_work(Future<std::vector<Tensor>>::ready({}), origin.type, origin.sequence);
  }
  const bool is_work_like = nb::hasattr(result, "wait") && nb::hasattr(result, "get_future");
  if (!is_work_like) throw_wrong_result(group, origin.method.c_str(), "a hookline.Work", result);
  return std::make_shared<PyWork>(PyRef(nb::borrow(result)), std::move(origin));
}

std::string PyWork::call_site(const char* method) const {
  return class_name_of(object_.get()) + "." + method + "() of " + origin_.group_class + "." + origin_.method + "()";
}

void PyWork::record_completion(std::exception_ptr error) {
  const std::lock_guard lock(mutex_);
  if (finished_) return;
  finished_ = Clock::now();
  error_ = std::move(error);
}

void PyWork::wait(std::optional<Milliseconds> timeout) {
  const auto deadline = timeout ? std::min(origin_.deadline, deadline_after(*timeout)) : origin_.deadline;
  const bool overrides_wait = call_python("Work.wait", [&] { return work_overrides(object_.get(), "wait"); });
  try {
    if (overrides_wait) {
      call_python("Work.wait",
                  [&] { call_method(object_.get(), "wait", nb::make_tuple(time_left(deadline)), "(timeout)"); });
    } else {
      const auto future = get_future();
      if (!future.wait_until(deadline)) {
        const std::string text = call_python("Work.wait", [&] { return call_site("get_future"); });
        throw Timeout(text + ": the future was not done in time");
      }
      future.value();
    }
  } catch (...) {
    if (overrides_wait || !is_pending()) record_completion(std::current_exception());
    throw;
  }
  record_completion(nullptr);
}

// True if the operation continues after a failed wait(), which may have been interrupted or had a shorter timeout.
bool PyWork::is_pending() const {
  const std::lock_guard lock(mutex_);
  return future_ && !future_->done() && Clock::now() < origin_.deadline;
}

Future<std::vector<Tensor>> PyWork::get_future() {
  {
    const std::lock_guard lock(mutex_);
    if (future_) return *future_;
  }
  auto future = call_python("Work.get_future", [&] { return make_future(); });
  const std::lock_guard lock(mutex_);
  if (!future_) future_ = std::move(future);
  return *future_;
}

Future<std::vector<Tensor>> PyWork::make_future() {
  nb::object future = constructor_future(object_.get());
  if (!future.is_valid() && work_overrides(object_.get(), "get_future")) {
    future = call_method(object_.get(), "get_future", nb::make_tuple(), "()");
    if (!is_future(future)) {
      PyErr_Format(PyExc_TypeError, "%s: expected a hookline.Future as the result, got %s",
                   call_site("get_future").c_str(), future.is_none() ? "None" : class_name_of(future).c_str());
      throw nb::python_error();
    }
  }
  if (future.is_valid()) {
    return tensors_of_future(future, call_site("get_future"), object_, origin_.outputs, origin_.deadline);
  }
  if (!work_overrides(object_.get(), "wait")) {
    throw Unsupported(class_name_of(object_.get()) +
                      " has neither wait nor get_future; define one of them in the class, or make it of a Future");
  }
  // wait() blocks, so it runs on the blocking executor.
  const auto executor = blocking_executor();
  if (!executor) throw Aborted("Work.get_future: Python is finalizing");
  Promise<std::vector<Tensor>> promise;
  auto result = promise.get_future();
  executor->post([self = std::static_pointer_cast<PyWork>(shared_from_this()), promise = std::move(promise)]() mutable {
    promise.set_from([&] {
      self->wait(std::nullopt);
      return self->result();
    });
  });
  return result;
}

bool PyWork::is_completed() {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return true;
    if (future_) return future_->done();
  }
  const auto reported = call_python("Work.is_completed", [&]() -> std::optional<bool> {
    if (!work_overrides(object_.get(), "is_completed")) return std::nullopt;
    return nb::cast<bool>(call_method(object_.get(), "is_completed", nb::make_tuple(), "()"));
  });
  return reported ? *reported : get_future().done();
}

std::exception_ptr PyWork::exception() {
  {
    const std::lock_guard lock(mutex_);
    if (finished_) return error_;
  }
  if (!is_completed()) return nullptr;
  const std::lock_guard lock(mutex_);
  return future_ ? future_->error() : nullptr;
}

int PyWork::source_rank() const {
  return call_python("Work.source_rank", [&] {
    if (!work_overrides(object_.get(), "source_rank")) return -1;
    return nb::cast<int>(call_method(object_.get(), "source_rank", nb::make_tuple(), "()"));
  });
}

// Code that waits for the future has a copy of the reference. A count of 2 is object_ and the temporary from owner().
nb::handle PyWork::sole_reference() const noexcept {
  return object_.owner().use_count() == 2 ? object_.get() : nb::handle();
}

Clock::time_point PyWork::time_finished() const {
  const std::lock_guard lock(mutex_);
  return finished_.value_or(Clock::now());
}

}  // namespace hookline::python
