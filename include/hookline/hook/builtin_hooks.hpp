// Built-in hooks without compression: allreduce and noop.
#pragma once

#include <memory>

#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// Averages the bucket over all ranks, in place. The default hook of a reducer.
class HOOKLINE_EXPORT AllreduceHook final : public CppCommHookInterface<std::shared_ptr<ProcessGroup>> {
 public:
  explicit AllreduceHook(std::shared_ptr<ProcessGroup> group);
  Future<HookResult> run_hook(GradBucket& bucket) override;
  bool enable_error_feedback() override { return true; }  // lossless: the residual is always zero
  /// Starts the allreduce and returns its Work, for callers that drive the operation by waiting for it.
  WorkPtr start(GradBucket& bucket, ReduceOp op = ReduceOp::avg);
};

/// Returns the buffer unchanged, neither reduced nor divided. Useful to measure the cost of communication.
class HOOKLINE_EXPORT NoopHook final : public CppCommHookInterface<std::monostate> {
 public:
  NoopHook();
  Future<HookResult> run_hook(GradBucket& bucket) override;
  bool enable_error_feedback() override { return true; }  // lossless: the residual is always zero
};

}  // namespace hookline
