// Hook specs of PyTorch's built-in hooks.
#include <hookline/hook/ddp_comm_hook_type.hpp>

#include <hookline/hook/registry.hpp>

namespace hookline {

std::string hook_spec(DDPCommHookType type) {
  switch (type) {
    case DDPCommHookType::ALLREDUCE: return "allreduce";
    case DDPCommHookType::FP16_COMPRESS: return "fp16";
    case DDPCommHookType::BF16_COMPRESS: return "bf16";
    case DDPCommHookType::QUANTIZE_PER_TENSOR: return "quantize_per_tensor";
    case DDPCommHookType::QUANTIZE_PER_CHANNEL: return "quantize_per_channel";
    case DDPCommHookType::POWER_SGD: return "powersgd(rank=1)";
    case DDPCommHookType::POWER_SGD_RANK2: return "powersgd(rank=2)";
    case DDPCommHookType::BATCHED_POWER_SGD: return "batched_powersgd(rank=1)";
    case DDPCommHookType::BATCHED_POWER_SGD_RANK2: return "batched_powersgd(rank=2)";
    case DDPCommHookType::NOOP: break;
  }
  return "noop";
}

HookPtr make_hook(DDPCommHookType type, std::shared_ptr<ProcessGroup> group) {
  return make_hook(hook_spec(type), std::move(group));
}

}  // namespace hookline
