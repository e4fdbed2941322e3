// Weights of ranks in the means, and the gradients that cannot be multiplied.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

#include "reducer/fallback_collectives.hpp"
#include "reducer/reducer_impl.hpp"

namespace hookline::reducer {

void ReducerImpl::require_floating_gradients(const std::string& reason) const {
  for (const std::size_t i : trainable_) {
    const Parameter& p = parameters[i];
    if (is_floating(p.tensor.dtype())) continue;
    throw InvalidArgument(
        fmt::format("the gradient of parameter '{}' on rank {} of {} is of {}: {}, or ignore the parameter", p.name,
                    group->rank(), group->size(), name(p.tensor.dtype()), reason));
  }
}

void ReducerImpl::set_weight(double weight) {
  check_between_steps("set_weight");
  if (!(weight >= 0) || std::isinf(weight))
    throw InvalidArgument(fmt::format("set_weight: {} is no weight; it must be a number of 0 or more", weight));
  require_floating_gradients("set_weight multiplies gradients by fractions. Weigh them before they are marked");
  const Tensor all = Tensor::empty({group->size()}, DType::f64);
  run_control_collective("gathering weights",
                         [&] { allgather_into_tensor(*group, all, Tensor::full({1}, weight, DType::f64))->wait(); });
  const std::span weights(all.data<const double>(), static_cast<std::size_t>(group->size()));
  const double largest = *std::max_element(weights.begin(), weights.end());
  if (!(largest > 0)) throw InvalidArgument("set_weight: the weights of all ranks add up to 0");
  weight_ = weight / largest;
  // In rank order, so that all ranks get the same bits.
  const double sum =
      std::accumulate(weights.begin(), weights.end(), 0.0, [&](double s, double w) { return s + w / largest; });
  weight_scale_ = group->size() / sum;
}

}  // namespace hookline::reducer
