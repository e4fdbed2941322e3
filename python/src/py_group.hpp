// Process groups as Python has them: a native group with a thread for Python callbacks, and the works it starts.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <sys/types.h>

#include <nanobind/nanobind.h>

#include <hookline/core/executor.hpp>
#include <hookline/group/decorator.hpp>

#include "callback_thread.hpp"
#include "completion_hook.hpp"
#include "group_hold.hpp"
#include "py_object.hpp"

namespace hookline::python {

/// A native group, and what Python needs beside it. May be dropped on any thread, with or without the GIL: the threads
/// that its end waits for may want it. At Python's exit, groups that still live are shut down.
class NativeGroup final : public GroupDecorator {
 public:
  /// `inner` may be null, and the result is then. `around` are the Python groups that `inner` was made around: they are
  /// kept here, where the garbage collector sees them, and `inner` refers to them without counting.
  static std::shared_ptr<ProcessGroup> make(std::shared_ptr<ProcessGroup> inner, std::vector<PyRef> around = {});

  NativeGroup(std::shared_ptr<ProcessGroup> inner, std::vector<PyRef> around);
  NativeGroup(const NativeGroup&) = delete;
  NativeGroup& operator=(const NativeGroup&) = delete;
  ~NativeGroup() override;

  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  std::shared_ptr<ProcessGroup> split(int color, int key) override;
  void abort(const std::string& cause) override;

  /// Whether the inner group refers to groups that Python objects own.
  bool is_around_python() const noexcept { return !around_.empty(); }
  CallbackThread& callbacks() noexcept { return callbacks_; }
  HookList& hook_list() noexcept { return hook_list_; }
  const std::shared_ptr<HeldReferences>& held_references() const noexcept { return held_references_; }

  /// With the GIL. References are shown only where the Python object is the only owner of this group: while C++ has it,
  /// nothing that it needs is garbage.
  int traverse(visitproc visit, void* arg);
  void clear();

 private:
  std::vector<PyRef> around_;
  const std::shared_ptr<HeldReferences> held_references_ = std::make_shared<HeldReferences>();
  HookList hook_list_;
  CallbackThread callbacks_;
  const pid_t made_in_;
};

/// A group of Python's, which somebody else keeps alive; a TypeError for another object. Needs the GIL.
std::shared_ptr<ProcessGroup> borrowed_group(nb::handle group);

/// What `make` makes around a group of Python's, be it native or a Python class.
template <class F>
std::shared_ptr<ProcessGroup> make_around(nb::handle group, F make) {
  return NativeGroup::make(make(borrowed_group(group)), {PyRef(nb::borrow(group))});
}

/// The thread on which Python callbacks of a group's futures run.
std::shared_ptr<Executor> callbacks_of(ProcessGroup& group);

/// The Python class Work. One of a native operation has the work, the group that it belongs to, and the very objects
/// that were passed as its outputs; one made in Python has at most a future.
struct WorkObject {
  WorkPtr work;
  nb::object group;
  nb::object outputs;  // a list
  nb::object future;
  nb::object error;  // a Python exception that it failed with, moved here from the native work
};

/// Shuts down every group that is left; to be called with the GIL when Python ends.
void end_groups();

}  // namespace hookline::python
