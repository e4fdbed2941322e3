// Functions as hooks and hook wrappers.
#include <hookline/hook/function_hook.hpp>

#include <hookline/core/error.hpp>

#include "hook/around_hook.hpp"

namespace hookline {
namespace {

class WrappedHook final : public hook::AroundHook {
 public:
  WrappedHook(HookPtr inner, const std::string& name, HookWrapper around)
      : AroundHook(std::move(inner), name), around_(std::move(around)) {}

 private:
  Future<Tensor> run(GradBucket& bucket) override { return around_(inner(), bucket); }

  const HookWrapper around_;
};

}  // namespace

namespace hook {

FunctionHook::FunctionHook(HookFunction function, HookTraits traits)
    : CppCommHookInterface(std::move(function), std::move(traits)) {
  check_given(static_cast<bool>(state_), true);
}

void check_given(bool function, bool state) {
  if (!function) throw InvalidArgument("make_hook: the function must not be empty");
  if (!state) throw InvalidArgument("make_hook: the state must not be null");
}

Future<HookResult> FunctionHook::run_hook(GradBucket& bucket) { return as_result(state_(bucket)); }

}  // namespace hook

HookPtr wrap(HookPtr inner, HookWrapper around, const std::string& name) {
  if (inner && !around) {
    throw InvalidArgument("wrap the hook " + inner->name() + ": the function must not be empty");
  }
  return std::make_shared<WrappedHook>(std::move(inner), name, std::move(around));
}

}  // namespace hookline
