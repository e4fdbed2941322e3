// What all hooks around others have in common.
#include "hook/around_hook.hpp"

#include <hookline/core/error.hpp>

namespace hookline::hook {
namespace {

HookTraits traits_around(const HookPtr& inner, const std::string& name) {
  if (!inner) throw InvalidArgument("there is no hook to wrap " + name + " around");
  return {.name = inner->name() + " | " + name, .may_block = inner->may_block()};
}

}  // namespace

AroundHook::AroundHook(HookPtr inner, const std::string& name)
    : CommHookInterface(traits_around(inner, name)), inner_(std::move(inner)) {}

Future<HookResult> AroundHook::run_hook(GradBucket& bucket) {
  Future<Tensor> reduced = run(bucket);
  return reduced.then([](const Future<Tensor>& done) { return HookResult(done.value()); });
}

}  // namespace hookline::hook
