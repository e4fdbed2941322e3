// One step of an optimizer over flat arrays: parameters, gradients and state are passed over once.
#pragma once

#include <cstddef>

#include <hookline/core/dtype.hpp>

#include "kernel/target.hpp"

namespace hookline::kernel {

/// Gradients are multiplied by `scale` first, whose sign is turned to maximise.
struct SgdStep {
  double scale = 1;
  double lr = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool first = false;  ///< the momentum's array holds nothing yet
};

/// Of float32 or float64 arrays of `count` elements, computed in that type without fused operations: every target gives
/// the same bits. `momentum` is null where there is none. Arrays do not overlap; they are aligned to their elements.
void sgd_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* momentum, std::size_t count,
              const SgdStep& step, Target target = best_target());

struct AdamStep {
  double scale = 1;
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;  ///< added to the gradient
  double shrink = 1;        ///< what parameters are multiplied by before, for decay that is decoupled
  double step_size = 0;     ///< the rate over the first moment's bias correction
  double second_scale = 1;  ///< one over the root of the second moment's
};

/// The same; `largest` is the largest second moment so far, or null.
void adam_step(DType dtype, std::byte* parameters, const std::byte* gradients, std::byte* first, std::byte* second,
               std::byte* largest, std::size_t count, const AdamStep& step, Target target = best_target());

}  // namespace hookline::kernel
