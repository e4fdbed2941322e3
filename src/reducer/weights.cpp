// ReducerImpl: weights of ranks, and the check for integer gradients.
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
        fmt::format("parameter '{}' on rank {} of {} has integer gradients ({}): {}, or ignore the parameter", p.name,
                    group->rank(), group->size(), name(p.tensor.dtype()), reason));
  }
}

void ReducerImpl::set_weight(double weight) {
  check_between_steps("set_weight");
  if (!(weight >= 0) || std::isinf(weight))
    throw InvalidArgument(fmt::format("set_weight on rank {} of {}: expected a finite weight of at least 0, got {}",
                                      group->rank(), group->size(), weight));
  require_floating_gradients("set_weight multiplies gradients by fractions. Scale them before marking");
  const Tensor all = Tensor::empty({group->size()}, DType::f64);
  run_control_collective("set_weight: gathering weights",
                         [&] { allgather_into_tensor(*group, all, Tensor::full({1}, weight, DType::f64))->wait(); });
  const std::span weights(all.data<const double>(), static_cast<std::size_t>(group->size()));
  const double largest = *std::max_element(weights.begin(), weights.end());
  if (!(largest > 0)) throw InvalidArgument("set_weight: expected a positive weight on some rank, got 0 on all ranks");
  weight_ = weight / largest;
  // In rank order, so that all ranks get the same bits.
  const double sum =
      std::accumulate(weights.begin(), weights.end(), 0.0, [&](double s, double w) { return s + w / largest; });
  weight_scale_ = group->size() / sum;
}

}  // namespace hookline::reducer
