// The hook around a function.
#include <hookline/hook/function_hook.hpp>

#include <hookline/core/error.hpp>

namespace hookline {
namespace hook {

// Not `co_return co_await state_(bucket)`: gcc 12 is safest with named values around co_await.
Future<HookResult> FunctionHook::run_hook(GradBucket& bucket) {
  Future<Tensor> reduced = state_(bucket);
  return reduced.then([](const Future<Tensor>& done) { return HookResult(done.value()); });
}

}  // namespace hook

HookPtr wrap(HookPtr inner, HookWrapper around, const std::string& name) {
  if (!inner) throw InvalidArgument("wrap: there is no hook to wrap anything around");
  const HookTraits traits{.name = inner->name() + " | " + name, .may_block = inner->may_block()};
  return make_hook(
      [inner = std::move(inner), around = std::move(around)](GradBucket& bucket) { return around(inner, bucket); },
      traits);
}

}  // namespace hookline
