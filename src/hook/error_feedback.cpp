// with_error_feedback: error feedback for hooks that report their contribution.
#include <cmath>
#include <mutex>
#include <optional>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/wrappers.hpp>

#include "group/float32.hpp"
#include "hook/around_hook.hpp"
#include "hook/kept_errors.hpp"

namespace hookline {
namespace {

class FeedbackHook final : public hook::AroundHook {
 public:
  explicit FeedbackHook(HookPtr inner) : AroundHook(std::move(inner), "error_feedback") {}

  bool keep_error() override { return true; }
  std::vector<HookCost> costs() const override {
    std::vector<HookCost> all = AroundHook::costs();
    const std::lock_guard lock(mutex_);
    for (HookCost& cost : all) cost.kept_error_norm = errors_.norm(cost.bucket);
    return all;
  }
  void save(StateWriter& to) const override {
    AroundHook::save(to);
    errors_.save(to);
  }
  void load(StateReader& from) override {
    AroundHook::load(from);
    errors_.load(from);
  }

 private:
  Future<Tensor> run(GradBucket& bucket) override {
    if (!is_floating(bucket.buffer().dtype()) || bucket.sparse_grad_indices()) {
      co_return co_await run_and_parse(inner(), bucket);
    }
    GradBucket reporting = bucket;
    reporting.request_contribution();
    const Tensor kept = errors_of(bucket);
    float* const errors = kept.data<float>();
    const auto count = static_cast<std::size_t>(kept.numel());
    const Tensor given = group::as_float32(bucket.buffer());
    float* const values = given.data<float>();
    for (std::size_t i = 0; i < count; ++i) {
      values[i] += errors[i];
      errors[i] = values[i];
    }
    group::from_float32(given, bucket.buffer());
    const Tensor result = co_await run_and_parse(inner(), reporting);
    const Tensor contribution = group::as_float32(contribution_to(reporting));
    const float* const sent = contribution.data<const float>();
    // Non-finite residuals are reset so that they do not affect later steps.
    for (std::size_t i = 0; i < count; ++i) {
      errors[i] -= sent[i];
      if (!std::isfinite(errors[i])) errors[i] = 0;
    }
    co_return result;
  }

  Tensor contribution_to(const GradBucket& bucket) const {
    if (const std::optional<Tensor> contribution = bucket.contribution()) return *contribution;
    throw InvalidArgument(fmt::format(
        "error_feedback of bucket {}: the hook {} declares that it reports its contribution: expected a call of "
        "bucket.set_contribution in every run, got none. Call it before the hook's Future completes.",
        bucket.index(), inner()->name()));
  }

  Tensor errors_of(const GradBucket& bucket) {
    const std::lock_guard lock(mutex_);
    return errors_.of(bucket);
  }

  mutable std::mutex mutex_;
  hook::KeptErrors errors_;
};

}  // namespace

HookPtr error_feedback(HookPtr inner) {
  const auto run = [](HookPtr hook, GradBucket& bucket) { return run_and_parse(std::move(hook), bucket); };
  if (inner && inner->keep_error()) return wrap(std::move(inner), run, "error_feedback");
  if (inner && !inner->reports_contribution()) {
    throw InvalidArgument(fmt::format(
        "error_feedback: the hook {} does not report what it sends of this rank's gradients: expected a hook made with "
        "reports_contribution=true, which calls bucket.set_contribution(decoded) in every run. Declare it and make "
        "that call, or leave error_feedback out.",
        inner->name()));
  }
  return std::make_shared<FeedbackHook>(std::move(inner));
}

}  // namespace hookline
