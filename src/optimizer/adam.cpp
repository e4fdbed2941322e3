// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019): options and kernel coefficients.
#include <hookline/optimizer/adam.hpp>

#include <cmath>

#include "kernel/optimizer_step.hpp"
#include "optimizer/require.hpp"

namespace hookline {
namespace {

AdamOptions with_collective_checks(AdamOptions o, double default_decay) {
  using optimizer::require;
  const double weight_decay = *(o.weight_decay = o.weight_decay.value_or(default_decay));
  require(o.lr >= 0, "Invalid learning rate: {}; it must be a number of 0 or more", o.lr);
  require(o.eps >= 0, "Invalid epsilon value: {}; it must be a number of 0 or more", o.eps);
  require(o.beta1 >= 0 && o.beta1 < 1, "Invalid beta parameter at index 0: {}; it must be in [0, 1)", o.beta1);
  require(o.beta2 >= 0 && o.beta2 < 1, "Invalid beta parameter at index 1: {}; it must be in [0, 1)", o.beta2);
  require(weight_decay >= 0, "Invalid weight_decay value: {}; it must be a number of 0 or more", weight_decay);
  return o;
}

}  // namespace

Adam::Adam(std::string name, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(name)),
      options_(with_collective_checks(options, decoupled ? 1e-2 : 0)),
      decoupled_(decoupled) {}
Adam::Adam(const AdamOptions& options) : Adam("adam", options, false) {}
AdamW::AdamW(const AdamOptions& options) : Adam("adamw", options, true) {}
AdamW::~AdamW() = default;

Optimizer::Options Adam::options() const {
  const AdamOptions& o = options_;
  return {{"lr", o.lr},
          {"beta1", o.beta1},
          {"beta2", o.beta2},
          {"eps", o.eps},
          {"weight_decay", *o.weight_decay},
          {"amsgrad", o.amsgrad ? 1 : 0},
          {"maximize", o.maximize ? 1 : 0}};
}

void Adam::assign_options(const Options& options) {
  options_ = with_collective_checks({.lr = options.at("lr"),
                                     .beta1 = options.at("beta1"),
                                     .beta2 = options.at("beta2"),
                                     .eps = options.at("eps"),
                                     .weight_decay = options.at("weight_decay"),
                                     .amsgrad = options.at("amsgrad") != 0,
                                     .maximize = options.at("maximize") != 0},
                                    0);
}

const std::vector<std::string>& Adam::state_names() const {
  static const std::vector<std::string> names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return names;
}

void Adam::apply_step(ParameterSlot& slot, const StepArrays& arrays, double scale) {
  const AdamOptions& o = options_;
  const auto steps = static_cast<double>(slot.step);
  std::byte* const exp_avg = state_data(slot, 0, arrays);
  std::byte* const exp_avg_sq = state_data(slot, 1, arrays);
  std::byte* const max_exp_avg_sq = o.amsgrad ? state_data(slot, 2, arrays) : nullptr;
  kernel::adam_step(arrays.dtype, arrays.parameters, arrays.gradients, exp_avg, exp_avg_sq, max_exp_avg_sq,
                    arrays.count,
                    {.scale = o.maximize ? -scale : scale,
                     .beta1 = o.beta1,
                     .beta2 = o.beta2,
                     .eps = o.eps,
                     .weight_decay = decoupled_ ? 0 : *o.weight_decay,
                     .decoupled_decay = decoupled_ ? 1 - o.lr * *o.weight_decay : 1,
                     .step_size = o.lr / (1 - std::pow(o.beta1, steps)),
                     .exp_avg_sq_scale = 1 / std::sqrt(1 - std::pow(o.beta2, steps))});
}

}  // namespace hookline
