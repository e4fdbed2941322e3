// reduced_gradients(), and the step() overloads of optimizers that take a Reducer. They are defined here because the
// optimizer module must not depend on the reducer module.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/optimizer/optimizer.hpp>
#include <hookline/optimizer/post_local_sgd_optimizer.hpp>
#include <hookline/reducer/reducer.hpp>

#include "reducer/reducer_impl.hpp"

namespace hookline {
namespace {

void reject_sparse(const std::string& optimizer, const Reducer& reducer) {
  for (const Parameter& parameter : reducer.parameters()) {
    if (!parameter.sparse || !parameter.has_gradient()) continue;
    throw Unsupported(fmt::format(
        "{}: parameter '{}' has sparse gradients, which optimizers cannot step. Step the dense parameters with "
        "step(reducer.reduced_gradients()), and this one with sparse_gradient(\"{}\")",
        optimizer, parameter.name, parameter.name));
  }
}

}  // namespace

namespace reducer {

std::vector<NamedGradient> ReducerImpl::reduced_gradients() const {
  check_between_steps("reading the reduced gradients");
  if (!reduced_) {
    throw InvalidArgument(fmt::format(
        "reduced gradients on rank {} of {}: the gradients are not reduced. Call this after finish() (in C++ "
        "finalize()), outside no_sync.",
        group->rank(), group->size()));
  }
  std::vector<NamedGradient> gradients;
  for (std::size_t p = 0; p < slots_.size(); ++p) {
    if (!param_progress_[p].dense || param_progress_[p].unused) continue;
    gradients.push_back({parameters[p].name, parameters[p].tensor, slots_[p].view});
  }
  return gradients;
}

}  // namespace reducer

void Optimizer::step(Reducer& reducer, double scale) {
  reject_sparse(name(), reducer);
  step(reducer.reduced_gradients(), scale);
}

void PostLocalSGDOptimizer::step(Reducer& reducer) {
  optimizer_->step(reducer);
  std::vector<Tensor> parameters;
  for (const Parameter& parameter : reducer.parameters()) {
    if (parameter.has_gradient()) parameters.push_back(parameter.tensor);
  }
  averager_->average_parameters(parameters);
}

}  // namespace hookline
