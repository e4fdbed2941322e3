// The hooks that need no codec: the mean of all ranks, and nothing at all.
#pragma once

#include <memory>

#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// The mean over all ranks, in place. What a reducer without a hook does.
class HOOKLINE_EXPORT AllreduceHook final : public CppCommHookInterface<std::shared_ptr<ProcessGroup>> {
 public:
  explicit AllreduceHook(std::shared_ptr<ProcessGroup> group);
  Future<HookResult> run_hook(GradBucket& bucket) override;
  bool keep_error() override { return true; }  // nothing is lost
  /// The same as a work, for a caller that wants to wait in the operation itself; with another op if one is given.
  WorkPtr start(GradBucket& bucket, ReduceOp op = ReduceOp::avg);
};

/// Hands the buffer back as it is, neither reduced nor divided: for measuring what communication costs.
class HOOKLINE_EXPORT NoopHook final : public CppCommHookInterface<std::monostate> {
 public:
  NoopHook();
  Future<HookResult> run_hook(GradBucket& bucket) override;
  bool keep_error() override { return true; }  // nothing is lost
};

}  // namespace hookline
