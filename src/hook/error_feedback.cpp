// with_error_feedback: error feedback for hooks that report their contribution.
#include <cmath>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/wrappers.hpp>

#include "group/float32.hpp"
#include "hook/hook_wrapper.hpp"
#include "hook/residual_store.hpp"

namespace hookline {
namespace {

class ErrorFeedbackHook final : public hook::HookWrapper {
 public:
  explicit ErrorFeedbackHook(HookPtr inner) : HookWrapper(std::move(inner), "error_feedback") {}

  bool enable_error_feedback() override { return true; }
  std::vector<HookStats> stats() const override {
    std::vector<HookStats> all = HookWrapper::stats();
    const std::lock_guard lock(mutex_);
    for (HookStats& stats : all) stats.residual_norm = residuals_.norm(stats.bucket);
    return all;
  }
  void save(StateWriter& writer) const override {
    HookWrapper::save(writer);
    residuals_.save(writer);
  }
  void load(StateReader& reader) override {
    HookWrapper::load(reader);
    residuals_.load(reader);
  }

 private:
  Future<Tensor> run(GradBucket& bucket) override {
    if (!is_floating(bucket.buffer().dtype()) || bucket.sparse_grad_indices()) {
      co_return co_await run_and_parse(inner(), bucket);
    }
    GradBucket reporting = bucket;
    reporting.request_contribution();
    const Tensor residual = residual_of(bucket);
    float* const residual_data = residual.data<float>();
    const auto count = static_cast<std::size_t>(residual.numel());
    const Tensor gradients = group::as_float32(bucket.buffer());
    float* const values = gradients.data<float>();
    for (std::size_t i = 0; i < count; ++i) {
      values[i] += residual_data[i];
      residual_data[i] = values[i];
    }
    group::from_float32(gradients, bucket.buffer());
    const Tensor result = co_await run_and_parse(inner(), reporting);
    const Tensor contribution = group::as_float32(contribution_of(reporting));
    const float* const sent = contribution.data<const float>();
    // Non-finite residuals are reset so that they do not affect later steps.
    for (std::size_t i = 0; i < count; ++i) {
      residual_data[i] -= sent[i];
      if (!std::isfinite(residual_data[i])) residual_data[i] = 0;
    }
    co_return result;
  }

  Tensor contribution_of(const GradBucket& bucket) const {
    if (const std::optional<Tensor> contribution = bucket.contribution()) return *contribution;
    throw InvalidArgument(fmt::format(
        "error_feedback of bucket {}: the hook {} declares that it reports its contribution: expected a call of "
        "bucket.set_contribution in every run, got none. Call it before the hook's Future completes.",
        bucket.index(), inner()->name()));
  }

  Tensor residual_of(const GradBucket& bucket) {
    const std::lock_guard lock(mutex_);
    return residuals_.residual_of(bucket);
  }

  mutable std::mutex mutex_;
  hook::ResidualStore residuals_;
};

}  // namespace

HookPtr with_error_feedback(HookPtr inner) {
  const auto run = [](HookPtr hook, GradBucket& bucket) { return run_and_parse(std::move(hook), bucket); };
  if (inner && inner->enable_error_feedback()) return wrap(std::move(inner), run, "error_feedback");
  if (inner && !inner->reports_contribution()) {
    throw InvalidArgument(fmt::format(
        "error_feedback: the hook {} does not report what it sends of this rank's gradients: expected a hook made with "
        "reports_contribution=true, which calls bucket.set_contribution(decoded) in every run. Declare it and make "
        "that call, or leave error_feedback out.",
        inner->name()));
  }
  return std::make_shared<ErrorFeedbackHook>(std::move(inner));
}

}  // namespace hookline
