// Hooks and buckets as Python has them.
#pragma once

#include <memory>
#include <string>

#include <nanobind/nanobind.h>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

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

/// A hook of C++'s in Python, and the group that it was made for.
struct PyHook {
  HookPtr hook;
  std::shared_ptr<ProcessGroup> group;
};

/// What a hook knows of the last step's buckets, as a list of dicts.
nb::list costs_of(const CommHookInterface& hook);

/// A Python function `hook(state, bucket)` as a hook. May be dropped on any thread. Every call of it takes the GIL; it
/// may wait inside, so hooks of this kind run one after another.
class PythonCommHook final : public CommHookInterface {
 public:
  PythonCommHook(nb::object state, nb::object hook, std::string name, bool for_torch, bool reports_contribution);

  Future<HookResult> run_hook(GradBucket& bucket) override;
  Tensor parse_hook_result(const HookResult& result) override;

  /// For the garbage collector, which must see what this hook refers to.
  nb::handle state() const noexcept { return state_.get(); }
  nb::handle function() const noexcept { return function_.get(); }

 private:
  const PyRef state_;
  const PyRef function_;
  const bool for_torch_;
};

/// The hook that a user named: text, a hook of C++'s, or a function with its state, which may stand for one of C++'s;
/// allreduce for None. Needs the GIL.
HookPtr hook_of(nb::handle state, nb::handle hook, const std::shared_ptr<ProcessGroup>& group, bool for_torch,
                bool reports_contribution = false);

}  // namespace hookline::python
