// A hook library, loaded at runtime: HOOKLINE_HOOK_PATH=build/dev/examples hookline hooks signs
#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include <hookline/hookline.hpp>

namespace hl = hookline;

namespace {

struct Signs {
  std::shared_ptr<hl::ProcessGroup> group;
  float scale;
};

/// Each rank sends the signs of its gradients and their mean magnitude; every rank averages the decoded gradients.
hl::Future<hl::Tensor> run(Signs& state, hl::GradBucket& bucket) {
  const hl::Tensor& gradients = bucket.buffer();
  const std::int64_t count = gradients.numel();
  const int ranks = state.group->size();
  const float* values = gradients.data<const float>();
  hl::Tensor size = hl::Tensor::zeros({1});
  hl::Tensor signs = hl::Tensor::empty({count}, hl::DType::i8);
  for (std::int64_t i = 0; i < count; ++i) {
    size.data<float>()[0] += std::abs(values[i]) * state.scale / static_cast<float>(count);
    signs.data<std::int8_t>()[i] = static_cast<std::int8_t>((values[i] > 0) - (values[i] < 0));
  }
  if (bucket.wants_contribution()) {  // for "signs | error_feedback"
    hl::Tensor decoded = hl::Tensor::empty({count});
    for (std::int64_t i = 0; i < count; ++i) {
      decoded.data<float>()[i] = static_cast<float>(signs.data<std::int8_t>()[i]) * size.item<float>();
    }
    bucket.set_contribution(decoded);
  }
  const hl::Tensor all_signs = hl::Tensor::empty({ranks * count}, hl::DType::i8);
  const hl::Tensor all_sizes = hl::Tensor::empty({ranks});
  co_await state.group->allgather_into_tensor(all_signs, signs);
  co_await state.group->allgather_into_tensor(all_sizes, size);
  for (std::int64_t i = 0; i < count; ++i) {
    float sum = 0;
    for (int r = 0; r < ranks; ++r) {
      sum += static_cast<float>(all_signs.data<std::int8_t>()[r * count + i]) * all_sizes.data<float>()[r];
    }
    gradients.data<float>()[i] = sum / static_cast<float>(ranks);
  }
  co_return gradients;
}

hl::HookPtr make(std::shared_ptr<hl::ProcessGroup> group, hl::HookOptions& options, const hl::HookPtr&) {
  const double scale = options.number("scale", 1);
  auto state = std::make_shared<Signs>(Signs{std::move(group), static_cast<float>(scale)});
  return hl::make_hook(run, std::move(state), {.name = "signs", .reports_contribution = true});
}

void register_all() {
  hl::register_hook("signs", hl::HookRole::base, make, "sends the signs of the gradients and their mean magnitude");
}

}  // namespace

HOOKLINE_REGISTER_HOOKS(register_all)
