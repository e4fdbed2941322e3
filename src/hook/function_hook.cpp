// The hook around a function.
#include <hookline/hook/function_hook.hpp>

#include "hook/around_hook.hpp"

namespace hookline {
namespace hook {

// Not `co_return co_await state_(bucket)`: gcc 12 is safest with named values around co_await.
Future<HookResult> FunctionHook::run_hook(GradBucket& bucket) {
  Future<Tensor> reduced = state_(bucket);
  return reduced.then([](const Future<Tensor>& done) { return HookResult(done.value()); });
}

}  // namespace hook

HookPtr wrap(HookPtr inner, HookWrapper around, const std::string& name) {
  return std::make_shared<hook::AroundHook>(std::move(inner), name, std::move(around));
}

}  // namespace hookline
