// Works that are Python objects, as C++ uses them.
#pragma once

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/backend/work.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// Where a work comes from, for messages and for what its class does not say.
struct WorkOrigin {
  std::string group_class;
  std::string method;
  OpType type = OpType::barrier;
  std::uint64_t sequence = 0;
  Clock::time_point deadline;
  std::vector<Tensor> outputs;
};

/// What an override of a process group returned, as a work for C++: a native one as it is, an object of a class derived
/// from Work, or anything else that has wait() and get_future(), as a PyWork. Anything else is a TypeError that names
/// class and method. Needs the GIL.
WorkPtr work_of(nb::handle group, nb::handle result, WorkOrigin origin);

/// Whether a work's class has a method of its own, beside those of Work. Needs the GIL.
bool work_overrides(nb::handle work, const char* method);

/// The C++ side of a work that is a Python object, which lives until this does. wait() calls its wait(timeout), or
/// waits for its future where it has none of its own; a future that is not done at the operation's deadline is a
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

  /// The Python object, for the garbage collector; null where it is needed elsewhere, too.
  nb::handle only_reference() const noexcept;

 private:
  Future<std::vector<Tensor>> make_future();
  std::string where(const char* method) const;
  void note_end(std::exception_ptr error);
  bool is_pending() const;

  const PyRef object_;
  const WorkOrigin origin_;
  const Clock::time_point started_ = Clock::now();
  mutable std::mutex mutex_;
  std::optional<Future<std::vector<Tensor>>> future_;
  std::optional<Clock::time_point> finished_;  ///< once wait() has returned, or thrown what is in error_
  std::exception_ptr error_;
};

}  // namespace hookline::python
