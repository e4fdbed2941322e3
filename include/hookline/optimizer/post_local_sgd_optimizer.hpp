// PostLocalSGDOptimizer: an optimizer combined with a model averager.
#pragma once

#include <memory>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/optimizer/model_averager.hpp>
#include <hookline/optimizer/optimizer.hpp>

namespace hookline {

/// Steps the parameters, then runs the model averager. For use with PostLocalSGDHook, whose start iteration should
/// equal the averager's warmup_steps.
class HOOKLINE_EXPORT PostLocalSGDOptimizer {
 public:
  /// Throws InvalidArgument if an argument is null.
  PostLocalSGDOptimizer(OptimizerPtr optimizer, std::shared_ptr<ModelAverager> averager);

  void step(const std::vector<NamedGradient>& gradients);

  const OptimizerPtr& optimizer() const noexcept { return optimizer_; }
  const std::shared_ptr<ModelAverager>& averager() const noexcept { return averager_; }

  /// Writes or reads the optimizer's options and state and the averager's step counter.
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 private:
  const OptimizerPtr optimizer_;
  const std::shared_ptr<ModelAverager> averager_;
};

}  // namespace hookline
