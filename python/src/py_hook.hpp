// Hooks and buckets as Python has them.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>
#include <hookline/hook/registry.hpp>

#include "group_hold.hpp"
#include "py_object.hpp"

namespace hookline::python {

/// A bucket, and the very object that was given as its buffer, where there is one.
struct PyGradBucket {
  GradBucket bucket;
  nb::object buffer;       // made when it is first asked for
  bool for_torch = false;  // arrays come as torch tensors, not as NumPy arrays

  nb::object array_of(const Tensor& tensor) const;
  nb::object get_buffer();
};

class PythonCommHook;

/// The Python objects that a hook refers to: functions, and the CommHook objects that it was made of.
struct HookParts {
  std::vector<std::shared_ptr<const PythonCommHook>> functions = {};
  std::vector<nb::object> hooks = {};

  bool empty() const noexcept { return functions.empty() && hooks.empty(); }
};

/// A hook of C++'s in Python, and the group that it was made for. The garbage collector sees the parts through this
/// object: an owner of the hook that may outlive the object owns the object, too.
struct PyHook {
  HookPtr hook;
  std::shared_ptr<ProcessGroup> group;
  HookParts parts = {};
  GroupHold hold = {};
};

/// What a hook knows of the last step's buckets, as a list of dicts.
nb::list costs_of(const CommHookInterface& hook);

/// A Python function `hook(state, bucket)` as a hook. May be dropped on any thread. Every call of it takes the GIL; it
/// may wait inside, so hooks of this kind run one after another. An object with save() and load(state) keeps its state
/// in the hook's; costs count the bytes of the operations that it starts.
class PythonCommHook final : public CommHookInterface {
 public:
  PythonCommHook(nb::object state, nb::object hook, std::string name, bool for_torch, bool reports_contribution,
                 int ranks);

  Future<HookResult> run_hook(GradBucket& bucket) override;
  Tensor parse_hook_result(const HookResult& result) override;
  std::vector<HookCost> costs() const override;
  void save(StateWriter& to) const override;
  void load(StateReader& from) override;

  /// For the garbage collector, which must see what this hook refers to.
  nb::handle state() const noexcept { return state_.get(); }
  nb::handle function() const noexcept { return function_.get(); }

 private:
  const PyRef state_;
  const PyRef function_;
  const bool for_torch_;
  struct Costs {
    std::mutex mutex;
    std::map<std::size_t, HookCost> by_bucket;
  };
  const std::shared_ptr<Costs> costs_ = std::make_shared<Costs>();
  const int ranks_;
};

/// While one lives, collects the parts of the hooks that this thread makes. Functions among them get torch tensors
/// where `for_torch`.
class MakingScope {
 public:
  explicit MakingScope(bool for_torch) noexcept;
  MakingScope(const MakingScope&) = delete;
  MakingScope& operator=(const MakingScope&) = delete;
  ~MakingScope();

  const bool for_torch;
  HookParts parts;

 private:
  MakingScope* const before_;
};

/// The factory of hooks that hookline.register_hook was given under this name.
HookPtr make_registered(const std::string& name, const std::shared_ptr<ProcessGroup>& group, HookOptions& options);

/// The hook that a user named, as a CommHook object: text, a CommHook, or a function with its state, which may stand
/// for a hook of C++'s; allreduce for None. Needs the GIL.
nb::object hook_object_of(nb::handle state, nb::handle hook, const std::shared_ptr<ProcessGroup>& group, bool for_torch,
                          bool reports_contribution = false);

/// The hook of a CommHook object.
HookPtr hook_in(nb::handle object);

/// The hook of a CommHook object for native code that may outlive the object.
HookPtr shared_hook(nb::handle object);

}  // namespace hookline::python
