// PostLocalSGDOptimizer: an optimizer combined with a model averager.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/optimizer/model_averager.hpp>
#include <hookline/optimizer/optimizer.hpp>

namespace hookline {

/// Updates the parameters, then runs the model averager. For use with PostLocalSGDHook, whose start iteration should
/// equal the averager's warmup_steps.
class HOOKLINE_EXPORT PostLocalSGDOptimizer {
 public:
  /// Throws InvalidArgument if an argument is null.
  PostLocalSGDOptimizer(OptimizerPtr optimizer, std::shared_ptr<ModelAverager> averager);

  void step(const std::vector<NamedGradient>& gradients);
  /// Updates the parameters of a reducer as Optimizer::step does, then averages all its trainable parameters, unused
  /// ones included.
  void step(Reducer& reducer);

  const OptimizerPtr& optimizer() const noexcept { return optimizer_; }
  const std::shared_ptr<ModelAverager>& averager() const noexcept { return averager_; }

  friend HOOKLINE_EXPORT std::vector<std::byte> save_state(const PostLocalSGDOptimizer& optimizer);
  friend HOOKLINE_EXPORT void load_state(PostLocalSGDOptimizer& optimizer, std::span<const std::byte> state);

 private:
  const OptimizerPtr optimizer_;
  const std::shared_ptr<ModelAverager> averager_;
};

/// Return and restore the optimizer's options and state and the averager's step counter. load_state throws
/// InvalidArgument if they were saved by another kind of optimizer, and for corrupt bytes.
HOOKLINE_EXPORT std::vector<std::byte> save_state(const PostLocalSGDOptimizer& optimizer);
HOOKLINE_EXPORT void load_state(PostLocalSGDOptimizer& optimizer, std::span<const std::byte> state);

}  // namespace hookline
