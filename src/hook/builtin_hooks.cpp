// The hooks allreduce and noop.
#include <hookline/hook/builtin_hooks.hpp>

#include <hookline/core/error.hpp>

namespace hookline {

AllreduceHook::AllreduceHook(std::shared_ptr<ProcessGroup> group)
    : CppCommHookInterface(std::move(group), {.name = "allreduce"}) {
  if (!state_) throw InvalidArgument("hook allreduce: process group must not be null");
}

WorkPtr AllreduceHook::start(GradBucket& bucket, ReduceOp op) {
  const AllreduceOptions options{.op = op};
  return state_->allreduce(bucket.buffer(), options);
}

Future<HookResult> AllreduceHook::run_hook(GradBucket& bucket) {
  const WorkPtr work = start(bucket);
  co_await work;
  co_return bucket.buffer();
}

NoopHook::NoopHook() : CppCommHookInterface({}, {.name = "noop"}) {}

Future<HookResult> NoopHook::run_hook(GradBucket& bucket) { return Future<HookResult>::ready(bucket.buffer()); }

}  // namespace hookline
