// Hooks and hook wrappers from functions and coroutines.
#pragma once

#include <concepts>
#include <functional>
#include <memory>
#include <type_traits>
#include <utility>

#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// A hook as a function: takes a bucket and returns a Future of the reduced buffer. May be a coroutine.
using HookFunction = std::function<Future<Tensor>(GradBucket&)>;

namespace hook {

class HOOKLINE_EXPORT FunctionHook final : public CppCommHookInterface<HookFunction> {
 public:
  FunctionHook(HookFunction function, HookTraits traits);
  Future<HookResult> run_hook(GradBucket& bucket) override;
};

/// Throws InvalidArgument if a hook's function or state is null.
HOOKLINE_EXPORT void check_not_null(bool has_function, bool has_state);

}  // namespace hook

/// Creates a hook from a function object: `make_hook([](GradBucket& bucket) { … })`. The hook owns the object, so the
/// captures of a coroutine lambda outlive its runs. Throws InvalidArgument for an empty function.
template <class F>
  requires std::is_invocable_r_v<Future<Tensor>, F&, GradBucket&>
HookPtr make_hook(F function, HookTraits traits = {"a function"}) {
  return std::make_shared<hook::FunctionHook>(HookFunction(std::move(function)), std::move(traits));
}

/// Creates a hook from a function and a state, such as a process group: `make_hook(mean_then_clip, group)`. The hook
/// shares ownership of the state. Throws InvalidArgument if one of them is null.
template <class State, std::convertible_to<std::shared_ptr<State>> Pointer>
HookPtr make_hook(Future<Tensor> (*function)(State&, GradBucket&), Pointer state, HookTraits traits = {"a function"}) {
  std::shared_ptr<State> shared_state = std::move(state);
  hook::check_not_null(function != nullptr, shared_state != nullptr);
  return make_hook([function, shared_state = std::move(shared_state)](
                       GradBucket& bucket) { return function(*shared_state, bucket); },
                   std::move(traits));
}

/// As above for a lambda or another function object, which the hook owns:
/// `make_hook([](ProcessGroup& group, GradBucket& bucket) -> Future<Tensor> { … }, group)`.
template <class F, class State>
  requires(!std::is_pointer_v<F>) && std::is_invocable_r_v<Future<Tensor>, F&, State&, GradBucket&>
HookPtr make_hook(F function, std::shared_ptr<State> state, HookTraits traits = {"a function"}) {
  bool has_function = true;
  if constexpr (requires { function == nullptr; }) has_function = !(function == nullptr);
  hook::check_not_null(has_function, state != nullptr);
  return make_hook([function = std::move(function), state = std::move(state)](
                       GradBucket& bucket) mutable { return std::invoke(function, *state, bucket); },
                   std::move(traits));
}

/// A hook wrapper as a function: runs code before and after `co_await run_and_parse(inner, bucket)`.
using WrapperFunction = std::function<Future<Tensor>(HookPtr inner, GradBucket& bucket)>;

/// Wraps `inner` with a function. may_block, statistics, error feedback and saved state are those of `inner`.
HOOKLINE_EXPORT HookPtr wrap(HookPtr inner, WrapperFunction wrapper, const std::string& name = "wrapped");

}  // namespace hookline
