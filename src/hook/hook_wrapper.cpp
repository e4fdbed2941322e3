// HookWrapper: traits and error feedback of nested hooks.
#include "hook/hook_wrapper.hpp"

#include <hookline/core/error.hpp>
#include <hookline/hook/wrappers.hpp>

namespace hookline::hook {
namespace {

HookTraits wrapper_traits(const HookPtr& inner, const std::string& name, bool applies_scale) {
  if (!inner) throw InvalidArgument("hook wrapper " + name + ": inner hook must not be null");
  return {.name = inner->name() + " | " + name,
          .may_block = inner->may_block(),
          .applies_scale = applies_scale || inner->applies_scale()};
}

}  // namespace

HookWrapper::HookWrapper(HookPtr inner, const std::string& name, bool applies_scale)
    : CommHookInterface(wrapper_traits(inner, name, applies_scale)), inner_(std::move(inner)) {}

// Not `co_return co_await reduced`: gcc 12 miscompiles temporaries around co_await.
Future<HookResult> as_result(Future<Tensor> reduced) {
  return reduced.then([](const Future<Tensor>& done) { return HookResult(done.value()); });
}

bool HookWrapper::enable_error_feedback() {
  if (!inner_->enable_error_feedback()) inner_ = with_error_feedback(inner_);
  return true;
}

Future<HookResult> HookWrapper::run_hook(GradBucket& bucket) { return as_result(run(bucket)); }

}  // namespace hookline::hook
