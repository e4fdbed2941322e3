// PostLocalSGDOptimizer.
#include <hookline/optimizer/post_local_sgd_optimizer.hpp>

#include <string_view>
#include <utility>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

namespace hookline {
namespace {

constexpr std::string_view kPostLocalMagic = "hookline PostLocalSGDOptimizer state 1";

}  // namespace

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

std::vector<std::byte> save_state(const PostLocalSGDOptimizer& optimizer) {
  StateWriter writer;
  writer.text(kPostLocalMagic);
  writer.integer(optimizer.averager_->step());
  optimizer.optimizer_->save(writer);
  return std::move(writer).state();
}

void load_state(PostLocalSGDOptimizer& optimizer, std::span<const std::byte> state) {
  StateReader reader(state);
  if (reader.text() != kPostLocalMagic) {
    throw InvalidArgument("load_state: these bytes are not the state of a PostLocalSGDOptimizer");
  }
  const auto step = reader.integer();
  optimizer.optimizer_->load(reader);
  reader.expect_end();
  optimizer.averager_->set_step(step);
}

}  // namespace hookline
