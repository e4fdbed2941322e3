// Communication hooks and gradient buckets as Python objects.
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

#include "group_refs.hpp"
#include "py_object.hpp"

namespace hookline::python {

/// A bucket, with the Python object of its buffer.
struct PyGradBucket {
  GradBucket bucket;
  nb::object buffer;       // created on first use
  bool for_torch = false;  // return torch tensors instead of NumPy arrays

  nb::object array_of(const Tensor& tensor) const;
  nb::object get_buffer();
};

class PythonCommHook;

/// The Python objects that a hook refers to: functions, and inner CommHook objects.
struct HookReferences {
  std::vector<std::shared_ptr<const PythonCommHook>> functions = {};
  std::vector<nb::object> hooks = {};

  bool empty() const noexcept { return functions.empty() && hooks.empty(); }
};

/// The Python class CommHook: a native hook and its group. The garbage collector sees the references through this
/// object, so code that owns the hook and may outlive this object must own the object as well; see owning_hook().
struct PyHook {
  HookPtr hook;
  std::shared_ptr<ProcessGroup> group;
  HookReferences references = {};
  GroupRefs group_refs = {};
};

/// Returns the statistics of the last step's buckets as a list of dicts.
nb::list hook_stats_of(const CommHookInterface& hook);

/// A Python function `hook(state, bucket)` as a native hook. Can be destroyed on any thread. Calls take the GIL. The
/// function may block, so hooks of this type run one after another. The state of an object with state_dict() and
/// load_state_dict(state_dict) is saved with the hook. The statistics count the bytes of the operations that the hook
/// starts.
class PythonCommHook final : public CommHookInterface {
 public:
  PythonCommHook(nb::object state, nb::object hook, std::string name, bool for_torch, bool reports_contribution,
                 int ranks);

  Future<HookResult> run_hook(GradBucket& bucket) override;
  Tensor parse_hook_result(const HookResult& result) override;
  std::vector<HookStats> stats() const override;
  void save(StateWriter& to) const override;
  void load(StateReader& from) override;

  /// For tp_traverse.
  nb::handle state() const noexcept { return state_.get(); }
  nb::handle function() const noexcept { return function_.get(); }

 private:
  const PyRef state_;
  const PyRef function_;
  const bool for_torch_;
  struct StatsTable {
    std::mutex mutex;
    std::map<std::size_t, HookStats> by_bucket;
  };
  const std::shared_ptr<StatsTable> stats_ = std::make_shared<StatsTable>();
  const int ranks_;
};

/// Collects the references of the hooks that this thread creates during its lifetime. With `for_torch`, Python
/// functions get torch tensors.
class HookConstructionScope {
 public:
  explicit HookConstructionScope(bool for_torch) noexcept;
  HookConstructionScope(const HookConstructionScope&) = delete;
  HookConstructionScope& operator=(const HookConstructionScope&) = delete;
  ~HookConstructionScope();

  const bool for_torch;
  HookReferences references;

 private:
  HookConstructionScope* const outer_;
};

/// Creates a hook with the factory that hookline.register_hook registered under this name.
HookPtr make_registered_hook(const std::string& name, const std::shared_ptr<ProcessGroup>& group, HookOptions& options);

/// Returns a CommHook object for a user's hook: a hook spec, a CommHook, or a function with its state, which may have a
/// native equivalent; None means allreduce. Needs the GIL.
nb::object make_hook_object(nb::handle state, nb::handle hook, const std::shared_ptr<ProcessGroup>& group,
                            bool for_torch, bool reports_contribution = false);

/// Returns the native hook of a CommHook object.
HookPtr hook_of(nb::handle object);

/// Returns the native hook of a CommHook object for code that may outlive the object.
HookPtr owning_hook(nb::handle object);

}  // namespace hookline::python
