// Adam (Kingma and Ba 2015) and AdamW (Loshchilov and Hutter 2019): options and kernel coefficients.
#include <hookline/optimizer/adam.hpp>

#include <cmath>

#include "kernel/optimizer_step.hpp"
#include "optimizer/ranges.hpp"

namespace hookline {
namespace {

AdamOptions checked(AdamOptions o, double usual_decay) {
  using optimizer::require;
  const double decay = *(o.weight_decay = o.weight_decay.value_or(usual_decay));
  require(o.lr >= 0, "Invalid learning rate: {}; it must be a number of 0 or more", o.lr);
  require(o.eps >= 0, "Invalid epsilon value: {}; it must be a number of 0 or more", o.eps);
  require(o.beta1 >= 0 && o.beta1 < 1,
          "Invalid beta parameter at index 0: {}; it must be in [0, 1)", o.beta1);
  require(o.beta2 >= 0 && o.beta2 < 1,
          "Invalid beta parameter at index 1: {}; it must be in [0, 1)", o.beta2);
  require(decay >= 0, "Invalid weight_decay value: {}; it must be a number of 0 or more", decay);
  return o;
}

}  // namespace

Adam::Adam(std::string name, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(name)), options_(checked(options, decoupled ? 1e-2 : 0)), decoupled_(decoupled) {}
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

void Adam::assign(const Options& all) {
  options_ = checked({.lr = all.at("lr"),
                      .beta1 = all.at("beta1"),
                      .beta2 = all.at("beta2"),
                      .eps = all.at("eps"),
                      .weight_decay = all.at("weight_decay"),
                      .amsgrad = all.at("amsgrad") != 0,
                      .maximize = all.at("maximize") != 0},
                     0);
}

const std::vector<std::string>& Adam::state_names() const {
  static const std::vector<std::string> names = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
  return names;
}

void Adam::apply(Slot& slot, const Arrays& arrays, double scale) {
  const AdamOptions& o = options_;
  const auto steps = static_cast<double>(slot.step);
  std::byte* const first = tensor_of(slot, 0, arrays);
  std::byte* const second = tensor_of(slot, 1, arrays);
  std::byte* const largest = o.amsgrad ? tensor_of(slot, 2, arrays) : nullptr;
  kernel::adam_step(arrays.dtype, arrays.parameters, arrays.gradients, first, second, largest, arrays.count,
                    {.scale = o.maximize ? -scale : scale,
                     .beta1 = o.beta1,
                     .beta2 = o.beta2,
                     .eps = o.eps,
                     .weight_decay = decoupled_ ? 0 : *o.weight_decay,
                     .shrink = decoupled_ ? 1 - o.lr * *o.weight_decay : 1,
                     .step_size = o.lr / (1 - std::pow(o.beta1, steps)),
                     .second_scale = 1 / std::sqrt(1 - std::pow(o.beta2, steps))});
}

}  // namespace hookline
