// SGD: options and kernel coefficients.
#include <hookline/optimizer/sgd.hpp>

#include <cmath>

#include "kernel/optimizer_step.hpp"
#include "optimizer/require.hpp"

namespace hookline {
namespace {

void check(const SGDOptions& o) {
  using optimizer::require;
  require(o.lr >= 0, "Invalid learning rate: {}; it must be a number of 0 or more", o.lr);
  require(o.momentum >= 0, "Invalid momentum value: {}; it must be a number of 0 or more", o.momentum);
  require(!std::isnan(o.dampening), "Invalid dampening value: {}; it must be a number", o.dampening);
  require(o.weight_decay >= 0, "Invalid weight_decay value: {}; it must be a number of 0 or more", o.weight_decay);
  require(!o.nesterov || (o.momentum > 0 && o.dampening == 0),
          "Nesterov momentum requires a momentum and zero dampening; the momentum is {}", o.momentum);
}

}  // namespace

SGD::SGD(const SGDOptions& options) : Optimizer("sgd"), options_(options) { check(options_); }

Optimizer::Options SGD::options() const {
  const SGDOptions& o = options_;
  return {{"lr", o.lr},
          {"momentum", o.momentum},
          {"dampening", o.dampening},
          {"weight_decay", o.weight_decay},
          {"nesterov", o.nesterov ? 1 : 0},
          {"maximize", o.maximize ? 1 : 0}};
}

void SGD::assign_options(const Options& options) {
  const SGDOptions next{.lr = options.at("lr"),
                        .momentum = options.at("momentum"),
                        .dampening = options.at("dampening"),
                        .weight_decay = options.at("weight_decay"),
                        .nesterov = options.at("nesterov") != 0,
                        .maximize = options.at("maximize") != 0};
  check(next);
  options_ = next;
}

const std::vector<std::string>& SGD::state_names() const {
  static const std::vector<std::string> names = {"momentum_buffer"};
  return names;
}

void SGD::apply_step(ParameterSlot& slot, const StepArrays& arrays, double scale) {
  const SGDOptions& o = options_;
  const bool first_step = !slot.tensors[0];
  std::byte* const momentum = o.momentum != 0 ? state_data(slot, 0, arrays) : nullptr;
  kernel::sgd_step(arrays.dtype, arrays.parameters, arrays.gradients, momentum, arrays.count,
                   {.scale = o.maximize ? -scale : scale,
                    .lr = o.lr,
                    .momentum = o.momentum,
                    .dampening = o.dampening,
                    .weight_decay = o.weight_decay,
                    .nesterov = o.nesterov,
                    .first_step = first_step});
}

}  // namespace hookline
