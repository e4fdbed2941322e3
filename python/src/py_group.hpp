// Native process groups and their works as Python objects.
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
#include "group_refs.hpp"
#include "py_object.hpp"

namespace hookline::python {

/// A native group with the data that Python needs for it. Can be destroyed on any thread, with or without the GIL: the
/// destructor releases the GIL, because it joins threads that may need it. Live groups are shut down at Python's exit.
class NativeGroup final : public GroupDecorator {
 public:
  /// Returns null if `inner` is null. `wrapped_groups` are the Python groups that `inner` wraps. This object owns them,
  /// where the garbage collector sees them; `inner` has unowned pointers to them.
  static std::shared_ptr<ProcessGroup> make(std::shared_ptr<ProcessGroup> inner,
                                            std::vector<PyRef> wrapped_groups = {});

  NativeGroup(std::shared_ptr<ProcessGroup> inner, std::vector<PyRef> wrapped_groups);
  NativeGroup(const NativeGroup&) = delete;
  NativeGroup& operator=(const NativeGroup&) = delete;
  ~NativeGroup() override;

  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  std::shared_ptr<ProcessGroup> split(int color, int key) override;
  void abort(const std::string& cause) override;

  /// True if the inner group refers to groups that Python objects own.
  bool wraps_python_groups() const noexcept { return !wrapped_groups_.empty(); }
  CallbackThread& callback_thread() noexcept { return callback_thread_; }
  CompletionHookList& hook_list() noexcept { return hook_list_; }
  const std::shared_ptr<GroupRefCounter>& ref_counter() const noexcept { return ref_counter_; }

  /// Needs the GIL. Visits references only if the Python object is the only owner of this group: while C++ code owns
  /// it, its references are not garbage.
  int traverse(visitproc visit, void* arg);
  void clear();

 private:
  std::vector<PyRef> wrapped_groups_;
  const std::shared_ptr<GroupRefCounter> ref_counter_ = std::make_shared<GroupRefCounter>();
  CompletionHookList hook_list_;
  CallbackThread callback_thread_;
  const pid_t creator_pid_;
};

/// Returns an unowned pointer to a Python process group; the caller keeps the object alive. Throws a TypeError for
/// other objects. Needs the GIL.
std::shared_ptr<ProcessGroup> borrowed_group(nb::handle group);

/// Returns the wrapper that `make` creates for a Python process group, which may be native or implemented in Python.
template <class F>
std::shared_ptr<ProcessGroup> make_wrapper_of(nb::handle group, F make) {
  return NativeGroup::make(make(borrowed_group(group)), {PyRef(nb::borrow(group))});
}

/// Returns the executor for Python callbacks of a group's futures.
std::shared_ptr<Executor> callback_executor_of(ProcessGroup& group);

/// The Python class Work. For a native operation: the work, its group, and the Python objects passed as outputs. For a
/// Work created in Python: at most a future.
struct WorkObject {
  WorkPtr work;
  nb::object group;
  nb::object outputs;  // a list
  nb::object future;
  nb::object error;  // the Python exception of a failed work, moved here from the native work
};

/// Shuts down all live groups. Called with the GIL at Python's exit.
void shutdown_groups();

}  // namespace hookline::python
