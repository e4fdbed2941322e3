// Optimizer steps over flat arrays, in one pass over parameters, gradients and state.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// Coefficients of an SGD step. `scale` multiplies the gradients; negative to maximize.
struct SgdCoefficients {
  double scale = 1;
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first_step = false;  ///< the momentum buffer is not initialized yet
};

/// Applies one SGD step to float32 or float64 arrays of `count` elements. Computes in that type without fused
/// multiply-add; results are bitwise identical on all targets. `momentum` may be null. Arrays must not overlap and must
/// be aligned to their elements.
void sgd_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
              const SgdCoefficients& coefficients, Target target = best_target());

/// Coefficients of an Adam or AdamW step.
struct AdamCoefficients {
  double scale = 1;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;      ///< added to the gradient
  double decoupled_decay = 1;   ///< multiplies the parameters: decoupled weight decay
  double step_size = 0;         ///< learning rate / bias correction of exp_avg
  double exp_avg_sq_scale = 1;  ///< 1 / sqrt(bias correction of exp_avg_sq)
};

/// Applies one Adam or AdamW step, with the same rules. `max_exp_avg_sq` is null without amsgrad.
void adam_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* exp_avg,
               std::byte* exp_avg_sq, std::byte* max_exp_avg_sq, std::size_t count,
               const AdamCoefficients& coefficients, Target target = best_target());

}  // namespace hookline::kernel
