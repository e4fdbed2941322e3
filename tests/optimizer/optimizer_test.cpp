// Tests for optimizers: options and specs, layouts, state and invalid arguments.
#include <hookline/optimizer/optimizer.hpp>

#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/optimizer/adam.hpp>
#include <hookline/optimizer/sgd.hpp>

namespace hookline {
namespace {

using ::testing::HasSubstr;

Tensor filled(const Dims& shape, double seed, DType dtype = DType::f32) {
  const Tensor t = Tensor::empty(shape, dtype);
  for (std::int64_t i = 0; i < t.numel(); ++i) {
    t.flatten().slice(0, i, i + 1).fill(std::sin(seed + static_cast<double>(i)));
  }
  return t;
}

std::vector<float> values(const Tensor& t) {
  const Tensor flat = t.contiguous().flatten();
  return {flat.data<const float>(), flat.data<const float>() + flat.numel()};
}

template <class F>
std::string message_of(F f) {
  try {
    f();
  } catch (const InvalidArgument& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Optimizer, StepsMatchTheFormula) {
  SGD sgd({.lr = 0.5, .momentum = 0.5});
  const Tensor p = Tensor::full({3}, 1);
  const Tensor g = Tensor::full({3}, 2);
  sgd.step("p", p, g);
  EXPECT_EQ(values(p), (std::vector<float>{0, 0, 0}));
  sgd.step("p", p, g, 0.5);
  EXPECT_EQ(values(p), (std::vector<float>{-1, -1, -1}));
  EXPECT_EQ(values(g), (std::vector<float>{2, 2, 2}));
  sgd.set_lr(0);
  sgd.step("p", p, g);
  EXPECT_EQ(values(p), (std::vector<float>{-1, -1, -1}));
}

TEST(Optimizer, StridedParametersAndGradients) {
  for (const char* text : {"sgd(lr=0.1, momentum=0.9)", "adam(lr=0.1)", "adamw(lr=0.1)"}) {
    const OptimizerPtr one = make_optimizer(text);
    const OptimizerPtr other = make_optimizer(text);
    const Tensor wide = filled({6, 8}, 1);
    const Tensor strided = wide.slice(1, 0, 8, 2);
    const Tensor dense = strided.clone();
    const Tensor before = wide.slice(1, 1, 8, 2).clone();
    const Tensor gradient = filled({6, 8}, 2).slice(1, 1, 8, 2);
    for (int s = 0; s < 3; ++s) {
      one->step("p", strided, gradient);
      other->step("p", dense, gradient.clone());
    }
    EXPECT_EQ(values(strided), values(dense)) << text;
    EXPECT_EQ(values(wide.slice(1, 1, 8, 2)), values(before)) << text;  // elements outside the view
  }
}

TEST(Optimizer, ZeroDimensionsAndNoElements) {
  const OptimizerPtr adam = make_optimizer("adam(lr=1)");
  const Tensor scalar = Tensor::full({}, 1);
  const Tensor nothing = Tensor::zeros({0, 4});
  adam->step({{"scalar", scalar, Tensor::full({}, 3)}, {"nothing", nothing, Tensor::zeros({0, 4})}});
  EXPECT_NEAR(scalar.item<float>(), 0, 1e-6);
  EXPECT_EQ(adam->state().at("nothing").step, 1u);
}

TEST(Optimizer, OptionsBySpecAndByName) {
  const OptimizerPtr sgd = make_optimizer("sgd(lr=0.1, momentum=0.9, nesterov=true, weight_decay=1e-4)");
  EXPECT_EQ(sgd->name(), "sgd");
  EXPECT_EQ(sgd->options().at("weight_decay"), 1e-4);
  EXPECT_EQ(sgd->options().at("nesterov"), 1);
  EXPECT_EQ(make_optimizer(sgd->spec())->options(), sgd->options());
  EXPECT_EQ(make_optimizer("adamw")->options().at("weight_decay"), 1e-2);
  EXPECT_EQ(make_optimizer("adam")->options().at("weight_decay"), 0);
  EXPECT_EQ(AdamW({.lr = 1}).options().at("weight_decay"), 1e-2) << "as in PyTorch, independent of the other options";
  sgd->set_options({{"lr", 0.5}, {"dampening", 0}});
  EXPECT_EQ(sgd->lr(), 0.5);
  EXPECT_THAT(message_of([&] { sgd->set_options({{"lr", 1}, {"momentum", 0}}); }), HasSubstr("Nesterov momentum"));
  EXPECT_EQ(sgd->lr(), 0.5);  // unchanged
  EXPECT_THAT(message_of([&] { sgd->set_options({{"eps", 1}}); }),
              HasSubstr("unknown option eps: expected one of dampening, lr"));
}

TEST(Optimizer, RejectsOptionsOutOfRange) {
  const auto refused = [](const char* text) { return message_of([&] { make_optimizer(text); }); };
  EXPECT_THAT(refused("sgd(lr=-1)"), HasSubstr("Invalid learning rate: -1; it must be a number of 0 or more"));
  EXPECT_THAT(refused("sgd(lr=nan)"), HasSubstr("Invalid learning rate"));
  EXPECT_THAT(refused("sgd(momentum=-0.1)"), HasSubstr("Invalid momentum value: -0.1"));
  EXPECT_THAT(refused("sgd(weight_decay=-1)"), HasSubstr("Invalid weight_decay value: -1"));
  EXPECT_THAT(refused("sgd(nesterov=true)"), HasSubstr("Nesterov momentum requires a momentum and zero dampening"));
  EXPECT_THAT(refused("sgd(nesterov=true, momentum=0.9, dampening=0.1)"), HasSubstr("zero dampening"));
  EXPECT_THAT(refused("adam(beta1=1)"), HasSubstr("Invalid beta parameter at index 0: 1"));
  EXPECT_THAT(refused("adamw(beta2=-0.5)"), HasSubstr("Invalid beta parameter at index 1: -0.5"));
  EXPECT_THAT(refused("adam(eps=-1)"), HasSubstr("Invalid epsilon value: -1"));
  EXPECT_THAT(refused("adam(lr=fast)"), HasSubstr("the optimizer adam: option lr: expected a number, got 'fast'"));
  EXPECT_THAT(refused("adam(momentum=1)"), HasSubstr("the optimizer adam has no option momentum; it has: lr, beta1"));
  EXPECT_THAT(refused("rmsprop"), HasSubstr("unknown optimizer rmsprop: expected adam, adamw or sgd"));
  EXPECT_THAT(refused("sgd | sgd"), HasSubstr("without wrappers"));
  EXPECT_THAT(refused(""), HasSubstr("expected the name of an optimizer"));
}

TEST(Optimizer, RejectsUnsupportedParameters) {
  const OptimizerPtr sgd = make_optimizer("sgd");
  const auto refused = [&](const Tensor& p, const Tensor& g) { return message_of([&] { sgd->step("w", p, g); }); };
  EXPECT_THAT(refused(Tensor::zeros({3}), Tensor::zeros({4})),
              HasSubstr("sgd: the gradient of parameter 'w' must be float32[3], got float32[4]"));
  EXPECT_THAT(refused(Tensor::zeros({3}), Tensor::zeros({3}, DType::f64)), HasSubstr("float64[3]"));
  EXPECT_THAT(refused(Tensor::zeros({3}).as_read_only(), Tensor::zeros({3})), HasSubstr("'w' is read-only"));
  EXPECT_THROW(sgd->step("w", Tensor::zeros({3}, DType::bf16), Tensor::zeros({3}, DType::bf16)), Unsupported);
  // All arguments are checked before the first step.
  const Tensor good = Tensor::full({2}, 1);
  EXPECT_THROW(sgd->step({{"a", good, good.clone()}, {"b", good, Tensor::zeros({3})}}), InvalidArgument);
  EXPECT_EQ(values(good), (std::vector<float>{1, 1}));
}

TEST(Optimizer, ResumesFromSavedStateBitForBit) {
  for (const char* text : {"sgd(lr=0.1, momentum=0.9)", "adam(lr=0.1, amsgrad=true)", "adamw(lr=0.1)"}) {
    const OptimizerPtr whole = make_optimizer(text);
    const Tensor p = filled({37}, 1);
    for (int s = 0; s < 5; ++s) whole->step("p", p, filled({37}, s));
    const std::vector<std::byte> saved = save_state(*whole);
    const std::map<std::string, ParameterState> state = whole->state();
    const Tensor by_bytes = p.clone();
    const Tensor by_map = p.clone();
    for (int s = 5; s < 9; ++s) whole->step("p", p, filled({37}, s));
    const OptimizerPtr loaded = make_optimizer(std::string(whole->name()) + "(lr=7)");
    load_state(*loaded, saved);
    EXPECT_EQ(loaded->options(), whole->options()) << text;
    const OptimizerPtr set = make_optimizer(text);
    set->set_state(state);
    for (int s = 5; s < 9; ++s) {
      loaded->step("p", by_bytes, filled({37}, s));
      set->step("p", by_map, filled({37}, s));
    }
    EXPECT_EQ(values(by_bytes), values(p)) << text;
    EXPECT_EQ(values(by_map), values(p)) << text;
  }
}

TEST(Optimizer, RejectsStateOfOtherOptimizers) {
  const OptimizerPtr sgd = make_optimizer("sgd(momentum=0.9)");
  sgd->step("w", Tensor::zeros({3}), Tensor::zeros({3}));
  EXPECT_THAT(message_of([&] { sgd->step("w", Tensor::zeros({4}), Tensor::zeros({4})); }),
              HasSubstr("the state of parameter 'w' does not match the model: expected float32[4], got float32[3]"));
  const OptimizerPtr adam = make_optimizer("adam");
  EXPECT_THAT(message_of([&] { load_state(*adam, save_state(*sgd)); }),
              HasSubstr("expected the state of the optimizer adam, got that of sgd"));
  EXPECT_THAT(message_of([&] { adam->set_state(sgd->state()); }),
              HasSubstr("adam: invalid state tensor 'momentum_buffer' of parameter 'w': expected exp_avg"));
  std::vector<std::byte> damaged = save_state(*sgd);
  damaged.resize(damaged.size() - 5);
  EXPECT_THROW(load_state(*sgd, damaged), InvalidArgument);
  EXPECT_THROW(load_state(*sgd, {}), InvalidArgument);
}

}  // namespace
}  // namespace hookline
