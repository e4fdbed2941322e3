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

void PostLocalSGDOptimizer::step(const std::vector<NamedGradient>& gradients) {
  optimizer_->step(gradients);
  std::vector<Tensor> parameters;
  parameters.reserve(gradients.size());
  for (const NamedGradient& item : gradients) parameters.push_back(item.parameter);
  averager_->average_parameters(parameters);
}

void PostLocalSGDOptimizer::save(StateWriter& writer) const {
  optimizer_->save(writer);
  writer.integer(averager_->step());
}

void PostLocalSGDOptimizer::load(StateReader& reader) {
  optimizer_->load(reader);
  averager_->set_step(reader.integer());
}

}  // namespace hookline
