// Functions as hooks and hook wrappers.
#include <hookline/hook/function_hook.hpp>

#include <hookline/core/error.hpp>

#include "hook/hook_wrapper.hpp"

namespace hookline {
namespace {

class FunctionWrapper final : public hook::HookWrapper {
 public:
  FunctionWrapper(HookPtr inner, const std::string& name, WrapperFunction function)
      : HookWrapper(std::move(inner), name), function_(std::move(function)) {}

 private:
  Future<Tensor> run(GradBucket& bucket) override { return function_(inner(), bucket); }

  const WrapperFunction function_;
};

}  // namespace

namespace hook {

FunctionHook::FunctionHook(HookFunction function, HookTraits traits)
    : CppCommHookInterface(std::move(function), std::move(traits)) {
  check_not_null(static_cast<bool>(state_), true);
}

void check_not_null(bool has_function, bool has_state) {
  if (!has_function) throw InvalidArgument("make_hook: the function must not be empty");
  if (!has_state) throw InvalidArgument("make_hook: the state must not be null");
}

Future<HookResult> FunctionHook::run_hook(GradBucket& bucket) { return as_result(state_(bucket)); }

}  // namespace hook

HookPtr wrap(HookPtr inner, WrapperFunction wrapper, const std::string& name) {
  if (inner && !wrapper) {
    throw InvalidArgument("wrap the hook " + inner->name() + ": the function must not be empty");
  }
  return std::make_shared<FunctionWrapper>(std::move(inner), name, std::move(wrapper));
}

}  // namespace hookline
