// Works that are Python objects, for C++ callers.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/backend/work.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// The operation that created a work, for messages and for attributes that its class lacks.
struct WorkOrigin {
  std::string group_class;
  std::string method;
  OpType type = OpType::barrier;
  std::uint64_t sequence = 0;
  Clock::time_point deadline;
  std::vector<Tensor> outputs;
};

/// Converts the return value of a Python process group's method to a Work. Returns a native work unchanged. Wraps an
/// instance of a Python subclass of Work, or any object with wait() and get_future(), in a PyWork. Throws a TypeError
/// that names the class and the method for other objects. Needs the GIL.
WorkPtr wrap_work(nb::handle group, nb::handle result, WorkOrigin origin);

/// True if a work's class overrides a method of Work. Needs the GIL.
bool work_overrides(nb::handle work, const char* method);

/// The C++ side of a work that is a Python object; owns the object. wait() calls the object's wait(timeout), or waits
/// for its future if it does not override wait(). A future that is not done at the operation's deadline fails with a
/// Timeout that names class and method.
class PyWork final : public Work {
 public:
  PyWork(PyRef object, WorkOrigin origin) : object_(std::move(object)), origin_(std::move(origin)) {}

  void wait(std::optional<Milliseconds> timeout) override;
  Future<std::vector<Tensor>> get_future() override;
  bool is_completed() override;
  std::exception_ptr exception() override;
  std::vector<Tensor> result() override { return origin_.outputs; }
  OpType op_type() const override { return origin_.type; }
  std::uint64_t sequence_number() const override { return origin_.sequence; }
  int source_rank() const override;
  Clock::time_point time_started() const override { return started_; }
  Clock::time_point time_finished() const override;

  /// Returns the Python object for tp_traverse; null if other code also refers to it.
  nb::handle sole_reference() const noexcept;

 private:
  Future<std::vector<Tensor>> make_future();
  std::string call_site(const char* method) const;
  void record_completion(std::exception_ptr error);
  bool is_pending() const;

  const PyRef object_;
  const WorkOrigin origin_;
  const Clock::time_point started_ = Clock::now();
  mutable std::mutex mutex_;
  std::optional<Future<std::vector<Tensor>>> future_;
  std::optional<Clock::time_point> finished_;  ///< set when wait() has returned, or has thrown error_
  std::exception_ptr error_;
};

}  // namespace hookline::python
