// HookWrapper: forwarding and error feedback of nested hooks.
#include "hook/around_hook.hpp"

#include <hookline/core/error.hpp>
#include <hookline/hook/wrappers.hpp>

namespace hookline::hook {
namespace {

HookTraits traits_around(const HookPtr& inner, const std::string& name, bool scales) {
  if (!inner) throw InvalidArgument("hook wrapper " + name + ": inner hook must not be null");
  return {.name = inner->name() + " | " + name, .may_block = inner->may_block(), .scales = scales || inner->scales()};
}

}  // namespace

AroundHook::AroundHook(HookPtr inner, const std::string& name, bool scales)
    : CommHookInterface(traits_around(inner, name, scales)), inner_(std::move(inner)) {}

// Not `co_return co_await reduced`: gcc 12 miscompiles temporaries around co_await.
Future<HookResult> as_result(Future<Tensor> reduced) {
  return reduced.then([](const Future<Tensor>& done) { return HookResult(done.value()); });
}

bool AroundHook::keep_error() {
  if (!inner_->keep_error()) inner_ = error_feedback(inner_);
  return true;
}

Future<HookResult> AroundHook::run_hook(GradBucket& bucket) { return as_result(run(bucket)); }

}  // namespace hookline::hook
