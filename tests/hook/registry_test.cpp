// Tests the hook registry: options, wrappers and error messages.
#include <hookline/hook/registry.hpp>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/ddp_comm_hook_type.hpp>
#include <hookline/hook/function_hook.hpp>

#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

using ::testing::HasSubstr;

std::string message(const std::string& text) {
  try {
    (void)make_hook(text, single_rank_group());
    return "nothing";
  } catch (const InvalidArgument& e) {
    return e.what();
  }
}

// Registers, once, a wrapper that multiplies the result and a base hook whose factory returns null.
void register_test_hooks() {
  static const bool once = [] {
    register_hook("times", HookRole::wrapper, [](auto, HookOptions& options, HookPtr inner) {
      const double factor = options.number("factor", 2);
      const auto around = [factor](HookPtr hook, GradBucket& bucket) -> Future<Tensor> {
        Tensor result = co_await run_and_parse(hook, bucket);
        result *= factor;
        co_return result;
      };
      return wrap(std::move(inner), around, "times");
    });
    const auto makes_none = [](auto, HookOptions&, const HookPtr&) -> HookPtr { return nullptr; };
    register_hook("idle", HookRole::base, makes_none, "makes no hook");
    return true;
  }();
  (void)once;
}

static_assert(std::is_convertible_v<const char*, HookOrSpec> && std::is_convertible_v<std::string, HookOrSpec>);
static_assert(std::is_convertible_v<HookPtr, HookOrSpec> && std::is_convertible_v<std::nullptr_t, HookOrSpec>);
static_assert(!std::is_convertible_v<int, HookOrSpec> && !std::is_convertible_v<std::shared_ptr<int>, HookOrSpec>);

TEST(Registry, HookOrSpecTakesEither) {
  const auto group = single_rank_group();
  const HookPtr noop = make_hook("noop", group);
  const auto typed = std::make_shared<NoopHook>();
  EXPECT_EQ(HookOrSpec(noop).make(nullptr), noop);
  EXPECT_EQ(HookOrSpec(typed).make(nullptr), typed);
  EXPECT_EQ(HookOrSpec("int8 | error_feedback").make(group)->spec(), make_hook("int8 | error_feedback", group)->spec());
  const HookOrSpec spec = std::string("noop");
  EXPECT_NE(spec.make(group), spec.make(group)) << "each call creates a hook";
  EXPECT_EQ(HookOrSpec().make(group), nullptr);
  EXPECT_EQ(HookOrSpec(nullptr).make(group), nullptr);
  EXPECT_EQ(HookOrSpec("").make(group), nullptr);
  EXPECT_THROW((void)HookOrSpec("no_such_hook").make(group), InvalidArgument);
}

TEST(Registry, AppliesWrappersInsideOut) {
  register_test_hooks();
  const HookPtr hook = make_hook("allreduce | times(factor=3) | times", single_rank_group());
  EXPECT_EQ(hook->name(), "allreduce | times | times");
  EXPECT_EQ(run(hook, bucket_with(layout({Dims{4}}, {}), [](auto) { return 1; })).data<float>()[3], 6.0f);
}

TEST(Registry, ErrorsListAlternatives) {
  register_test_hooks();
  EXPECT_THAT(message("alreduce"), HasSubstr("no hook is called alreduce; there are allreduce,"));
  EXPECT_THAT(message("allreduce(x=1)"), HasSubstr("has no option x; it has: none"));
  EXPECT_THAT(message("noop | times(faktor=1)"), HasSubstr("has no option faktor; it has: factor"));
  EXPECT_THAT(message("noop | times(factor=much)"), HasSubstr("option factor: expected a number, got 'much'"));
  EXPECT_THAT(message("noop | allreduce"), HasSubstr("cannot be wrapped"));
  EXPECT_THAT(message("times"), HasSubstr("write 'allreduce | times'"));
  EXPECT_THAT(message("error_feedback | int8"),
              HasSubstr("error_feedback is a wrapper and cannot come first; write 'int8 | error_feedback'"));
  EXPECT_THAT(message("log | error_feedback | int8(block=64, seed=2) | compare"),
              HasSubstr("write 'int8(block=64, seed=2) | log | error_feedback | compare'"));
  EXPECT_THAT(message("fp16 | int8"), HasSubstr("int8 cannot be wrapped around another hook; write 'int8 | fp16'"));
  EXPECT_THAT(message("error_feedback | log"), HasSubstr("write 'allreduce | error_feedback | log'"));
  EXPECT_THAT(message("allreduce | int8"), HasSubstr("write either allreduce or int8"));
  EXPECT_THAT(message("idle | log"), HasSubstr("the factory of idle returned null"));
  EXPECT_THROW((void)make_hook("allreduce", nullptr), InvalidArgument);
  EXPECT_THROW(register_hook("allreduce", HookRole::base, {}), InvalidArgument);
  EXPECT_THROW(register_hook("a b", HookRole::base, {}), InvalidArgument);
}

TEST(Registry, UnregistersAndRegistersAgain) {
  const auto noop = [](auto, HookOptions&, const HookPtr&) { return make_hook("noop", single_rank_group()); };
  register_hook("passing", HookRole::base, noop);
  const HookPtr hook = make_hook("passing", single_rank_group());
  unregister_hook("passing");
  EXPECT_THAT(message("passing"), HasSubstr("no hook is called passing"));
  EXPECT_EQ(run(hook, bucket_with(layout({Dims{4}}, {}), [](auto) { return 1; })).numel(), 4);
  EXPECT_NO_THROW(register_hook("passing", HookRole::base, noop));
  unregister_hook("passing");
  for (const char* name : {"passing", "int8", ""}) EXPECT_THROW(unregister_hook(name), InvalidArgument) << name;
}

TEST(Registry, OptionsOfEveryType) {
  HookOptions options("h", {{"i", "-3"}, {"b", "false"}, {"w", "fp16"}, {"t", "x"}, {"bad", "1.5"}});
  EXPECT_EQ(options.integer("i", 7), -3);
  EXPECT_EQ(options.integer("none", 7), 7);
  EXPECT_FALSE(options.boolean("b", true));
  EXPECT_EQ(options.choice("w", "f32", {"f32", "fp16"}), "fp16");
  EXPECT_EQ(options.text("t", ""), "x");
  EXPECT_THROW(options.integer("bad", 0), InvalidArgument);
  EXPECT_THROW(options.boolean("bad", false), InvalidArgument);
  EXPECT_THROW(options.choice("t", "", {"y"}), InvalidArgument);
  EXPECT_NO_THROW(options.check_all_known());
}

std::string options_of(const std::string& name) {
  std::string all;
  for (const HookOption& o : hook_options(name)) all += o.name + "=" + o.default_value + " (" + o.expected + ") ";
  return all;
}

TEST(Registry, ListsOptionsOfEveryHook) {
  register_test_hooks();
  EXPECT_EQ(options_of("allreduce"), "");
  EXPECT_EQ(options_of("times"), "factor=2 (a number) ");
  EXPECT_EQ(options_of("int4"),
            "block=128 (an integer, or tensor) range=symmetric (one of affine, symmetric) rounding=nearest (one of "
            "nearest, stochastic) "
            "seed=0 (an integer) ");
  EXPECT_EQ(options_of("where"),
            "name=* (a pattern) min_size=0 (an integer) max_size= (an integer) dims=-1 (an integer) "
            "fallback=allreduce (the name of a hook) ");
  for (const HookDescription& hook : registered_hooks()) {
    EXPECT_FALSE(hook.description.empty() && hook.name != "times") << hook.name;
    for (const HookOption& o : hook_options(hook.name)) {
      const std::string inner = hook.role == HookRole::wrapper ? "noop | " : "";
      if (o.default_value.empty()) continue;
      const std::string text = inner + hook.name + "(" + o.name + "=" + o.default_value + ")";
      EXPECT_NO_THROW((void)make_hook(text, single_rank_group()))
          << text;  // every default value is valid as an explicit value
    }
  }
  EXPECT_THROW((void)hook_options("none"), InvalidArgument);
}

TEST(Registry, MapsPyTorchTypes) {
  EXPECT_EQ(hook_spec(DDPCommHookType::POWER_SGD_RANK2), "powersgd(rank=2)");
  EXPECT_EQ(make_hook(DDPCommHookType::ALLREDUCE, single_rank_group())->name(), "allreduce");
  EXPECT_EQ(make_hook(DDPCommHookType::NOOP, single_rank_group())->name(), "noop");
}

}  // namespace
}  // namespace hookline::testing
