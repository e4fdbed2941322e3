// Process groups as Python has them: a native group with a thread for Python callbacks, and the works it starts.
#pragma once

#include <memory>
#include <mutex>

#include <sys/types.h>

#include <nanobind/nanobind.h>

#include <hookline/core/executor.hpp>
#include <hookline/group/process_group.hpp>

#include "py_object.hpp"

namespace hookline::python {

/// A native group, and what Python needs beside it. May be dropped on any thread, with or without the GIL: the threads
/// that its end waits for may want it. At Python's exit, groups that still live are shut down.
class NativeGroup final : public ProcessGroup {
 public:
  /// `inner` may be null, and the result is then.
  static std::shared_ptr<ProcessGroup> make(std::shared_ptr<ProcessGroup> inner);

  explicit NativeGroup(std::shared_ptr<ProcessGroup> inner);
  NativeGroup(const NativeGroup&) = delete;
  NativeGroup& operator=(const NativeGroup&) = delete;
  ~NativeGroup() override;

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string backend_name() const override { return inner_->backend_name(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  WorkPtr run(Collective collective) override { return inner_->run(std::move(collective)); }
  Tensor empty(const Dims& shape, DType dtype) override { return inner_->empty(shape, dtype); }
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  Milliseconds timeout() const override { return inner_->timeout(); }
  void set_timeout(Milliseconds timeout) override { inner_->set_timeout(timeout); }
  std::uint64_t sequence_number() const override { return inner_->sequence_number(); }
  void abort(const std::string& cause) override;
  void shutdown() override { inner_->shutdown(); }

  /// The group's callback thread, started when it is first asked for.
  std::shared_ptr<Executor> callbacks();
  /// Waits, for a while, until the callbacks that were due have run. Without the GIL.
  void drain_callbacks();

 private:
  std::shared_ptr<ProcessGroup> inner_;
  std::mutex mutex_;
  std::shared_ptr<Executor> callbacks_;
  const pid_t made_in_;
};

/// The thread on which Python callbacks of a group's futures run.
std::shared_ptr<Executor> callbacks_of(ProcessGroup& group);

/// A work, the group that it belongs to, and the very objects that were passed as its outputs.
struct PyWork {
  WorkPtr work;
  std::shared_ptr<ProcessGroup> group;
  nb::object outputs;  // a list
};

/// Shuts down every group that is left; to be called with the GIL when Python ends.
void end_groups();

}  // namespace hookline::python
