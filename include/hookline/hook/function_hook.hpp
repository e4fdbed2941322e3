// Functions and coroutines as hooks.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// What a hook is as a function: a bucket in, the Future of the reduced buffer out. May be a coroutine.
using HookFunction = std::function<Future<Tensor>(GradBucket&)>;

namespace hook {

class HOOKLINE_EXPORT FunctionHook final : public CppCommHookInterface<HookFunction> {
 public:
  FunctionHook(HookFunction function, HookTraits traits);
  Future<HookResult> run_hook(GradBucket& bucket) override;
};

/// Throws InvalidArgument where a hook's function or its state is null.
HOOKLINE_EXPORT void check_given(bool function, bool state);

}  // namespace hook

/// A hook of a function object, which lives as long as the hook: `make_hook([](GradBucket& bucket) { … })`. A coroutine
/// must not be a lambda with captures unless the captures outlive it, as they do here. InvalidArgument for an empty
/// one.
template <class F>
  requires std::is_invocable_r_v<Future<Tensor>, F&, GradBucket&>
HookPtr make_hook(F function, HookTraits traits = {"a function"}) {
  return std::make_shared<hook::FunctionHook>(HookFunction(std::move(function)), std::move(traits));
}

/// A hook of a function with a state, such as a process group: `make_hook(mean_then_clip, group)`. The hook keeps the
/// state alive.
template <class State, std::convertible_to<std::shared_ptr<State>> Pointer>
HookPtr make_hook(Future<Tensor> (*function)(State&, GradBucket&), Pointer state, HookTraits traits = {"a function"}) {
  std::shared_ptr<State> kept = std::move(state);
  hook::check_given(function != nullptr, kept != nullptr);
  return make_hook([function, kept = std::move(kept)](GradBucket& bucket) { return function(*kept, bucket); },
                   std::move(traits));
}

/// What a hook around another is: does what it wants before and after `co_await run_and_parse(inner, bucket)`.
using HookWrapper = std::function<Future<Tensor>(HookPtr inner, GradBucket& bucket)>;

/// A hook around `inner`. It may block where the inner one may; costs, kept errors and state are the inner one's.
HOOKLINE_EXPORT HookPtr wrap(HookPtr inner, HookWrapper around, const std::string& name = "wrapped");

}  // namespace hookline
