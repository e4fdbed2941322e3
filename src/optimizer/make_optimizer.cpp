// make_optimizer: optimizers from specs, in the syntax of hook specs.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/optimizer/adam.hpp>
#include <hookline/optimizer/sgd.hpp>

#include "hook/hook_spec.hpp"

namespace hookline {
namespace {

AdamOptions adam_options(HookOptions& options) {
  AdamOptions o;
  o.lr = options.number("lr", o.lr);
  o.beta1 = options.number("beta1", o.beta1);
  o.beta2 = options.number("beta2", o.beta2);
  o.eps = options.number("eps", o.eps);
  if (!options.text("weight_decay", "").empty()) o.weight_decay = options.number("weight_decay", 0);
  o.amsgrad = options.boolean("amsgrad", o.amsgrad);
  o.maximize = options.boolean("maximize", o.maximize);
  return o;
}

SGDOptions sgd_options(HookOptions& options) {
  SGDOptions o;
  o.lr = options.number("lr", o.lr);
  o.momentum = options.number("momentum", o.momentum);
  o.dampening = options.number("dampening", o.dampening);
  o.weight_decay = options.number("weight_decay", o.weight_decay);
  o.nesterov = options.boolean("nesterov", o.nesterov);
  o.maximize = options.boolean("maximize", o.maximize);
  return o;
}

}  // namespace

OptimizerPtr make_optimizer(std::string_view spec) {
  std::vector<hook::SpecTerm> terms = hook::parse_hook_spec(spec, "optimizer");
  if (terms.size() != 1) {
    throw InvalidArgument(fmt::format("optimizer spec '{}': expected one optimizer, without wrappers", spec));
  }
  const std::string& name = terms[0].name;
  HookOptions options(name, terms[0].options, "optimizer");
  OptimizerPtr optimizer;
  if (name == "sgd") optimizer = std::make_shared<SGD>(sgd_options(options));
  else if (name == "adam") optimizer = std::make_shared<Adam>(adam_options(options));
  else if (name == "adamw") optimizer = std::make_shared<AdamW>(adam_options(options));
  else
    throw InvalidArgument(
        fmt::format("optimizer spec '{}': unknown optimizer {}: expected adam, adamw or sgd", spec, name));
  options.check_all_known();
  return optimizer;
}

}  // namespace hookline
