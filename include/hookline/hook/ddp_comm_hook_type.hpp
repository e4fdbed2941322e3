// DDPCommHookType: PyTorch's names of its built-in hooks.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

enum class DDPCommHookType : std::uint8_t {
  ALLREDUCE,
  FP16_COMPRESS,
  BF16_COMPRESS,
  QUANTIZE_PER_TENSOR,
  QUANTIZE_PER_CHANNEL,
  POWER_SGD,
  POWER_SGD_RANK2,
  BATCHED_POWER_SGD,
  BATCHED_POWER_SGD_RANK2,
  NOOP,
};

/// Returns the hook spec of `type` for make_hook.
HOOKLINE_EXPORT std::string hook_spec(DDPCommHookType type);

/// Creates the hook of `type` on `group`.
HOOKLINE_EXPORT HookPtr make_hook(DDPCommHookType type, std::shared_ptr<ProcessGroup> group);

}  // namespace hookline
