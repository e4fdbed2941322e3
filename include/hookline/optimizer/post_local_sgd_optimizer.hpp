// An optimizer whose parameters are averaged over ranks now and then.
#pragma once

#include <memory>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/optimizer/model_averager.hpp>
#include <hookline/optimizer/optimizer.hpp>

namespace hookline {

/// Steps, then averages where it is due. Goes with PostLocalSGDHook, whose start is the averager's warm-up.
class HOOKLINE_EXPORT PostLocalSGDOptimizer {
 public:
  /// InvalidArgument where one of them is null.
  PostLocalSGDOptimizer(OptimizerPtr optimizer, std::shared_ptr<ModelAverager> averager);

  void step(const std::vector<NamedGradient>& all);

  const OptimizerPtr& optimizer() const noexcept { return optimizer_; }
  const std::shared_ptr<ModelAverager>& averager() const noexcept { return averager_; }

  /// The optimizer's state and the averager's counter.
  void save(StateWriter& to) const;
  void load(StateReader& from);

 private:
  const OptimizerPtr optimizer_;
  const std::shared_ptr<ModelAverager> averager_;
};

}  // namespace hookline
