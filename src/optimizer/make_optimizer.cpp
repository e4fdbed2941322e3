// make_optimizer: optimizers from specs, in the syntax of hook specs.
#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/optimizer/adam.hpp>
#include <hookline/optimizer/sgd.hpp>

#include "hook/hook_text.hpp"

namespace hookline {
namespace {

AdamOptions adam_options(HookOptions& given) {
  AdamOptions o;
  o.lr = given.number("lr", o.lr);
  o.beta1 = given.number("beta1", o.beta1);
  o.beta2 = given.number("beta2", o.beta2);
  o.eps = given.number("eps", o.eps);
  if (!given.text("weight_decay", "").empty()) o.weight_decay = given.number("weight_decay", 0);
  o.amsgrad = given.boolean("amsgrad", o.amsgrad);
  o.maximize = given.boolean("maximize", o.maximize);
  return o;
}

SGDOptions sgd_options(HookOptions& given) {
  SGDOptions o;
  o.lr = given.number("lr", o.lr);
  o.momentum = given.number("momentum", o.momentum);
  o.dampening = given.number("dampening", o.dampening);
  o.weight_decay = given.number("weight_decay", o.weight_decay);
  o.nesterov = given.boolean("nesterov", o.nesterov);
  o.maximize = given.boolean("maximize", o.maximize);
  return o;
}

}  // namespace

OptimizerPtr make_optimizer(std::string_view text) {
  std::vector<hook::HookPart> parts = hook::read_hook_text(text, "optimizer");
  if (parts.size() != 1) {
    throw InvalidArgument(fmt::format("optimizer spec '{}': expected one optimizer, without wrappers", text));
  }
  const std::string& name = parts[0].name;
  HookOptions given(name, parts[0].options, "optimizer");
  OptimizerPtr made;
  if (name == "sgd") made = std::make_shared<SGD>(sgd_options(given));
  else if (name == "adam") made = std::make_shared<Adam>(adam_options(given));
  else if (name == "adamw") made = std::make_shared<AdamW>(adam_options(given));
  else
    throw InvalidArgument(
        fmt::format("optimizer spec '{}': unknown optimizer {}: expected adam, adamw or sgd", text, name));
  given.check_all_known();
  return made;
}

}  // namespace hookline
