// PostLocalSGDOptimizer.
#include <hookline/optimizer/post_local_sgd_optimizer.hpp>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

namespace hookline {

PostLocalSGDOptimizer::PostLocalSGDOptimizer(OptimizerPtr optimizer, std::shared_ptr<ModelAverager> averager)
    : optimizer_(std::move(optimizer)), averager_(std::move(averager)) {
  if (!optimizer_) throw InvalidArgument("PostLocalSGDOptimizer: optimizer must not be null");
  if (!averager_) throw InvalidArgument("PostLocalSGDOptimizer: averager must not be null");
}

void PostLocalSGDOptimizer::step(const std::vector<NamedGradient>& all) {
  optimizer_->step(all);
  std::vector<Tensor> parameters;
  parameters.reserve(all.size());
  for (const NamedGradient& one : all) parameters.push_back(one.parameter);
  averager_->average_parameters(parameters);
}

void PostLocalSGDOptimizer::save(StateWriter& to) const {
  optimizer_->save(to);
  to.number(averager_->step());
}

void PostLocalSGDOptimizer::load(StateReader& from) {
  optimizer_->load(from);
  averager_->set_step(from.number());
}

}  // namespace hookline
