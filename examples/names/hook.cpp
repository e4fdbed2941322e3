// The names of the room hook that authors of hooks use: hooks of their own, by name, and what they keep between runs.
// hookline run -n 2 build/dev/examples/example_names_hook
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <hookline/hookline.hpp>

#include "expect.hpp"
namespace hl = hookline;

namespace {

/// The sum of all ranks, and a counter of the steps that a resumed run goes on with.
class CountingHook final : public hl::CppCommHookInterface<std::shared_ptr<hl::ProcessGroup>> {
 public:
  explicit CountingHook(std::shared_ptr<hl::ProcessGroup> group)
      : CppCommHookInterface(std::move(group), hl::HookTraits{.name = "counting"}) {}

  hl::Future<hl::HookResult> run_hook(hl::GradBucket& bucket) override {
    co_await state_->allreduce(bucket.buffer());
    co_return bucket.buffer();
  }
  // A C++ hook's result is a tensor; one that carries something else says here how to find it.
  hl::Tensor parse_hook_result(const hl::HookResult& result) override { return hl::tensor_of(result); }

  void end_step(const hl::HookStep& step) override { steps += step.unused.empty() ? 1 : 0; }
  std::vector<hl::HookCost> costs() const override { return {{.bucket = 0, .values = 2, .sent_bytes = 8}}; }
  void save(hl::StateWriter& to) const override { to.number(steps); }
  void load(hl::StateReader& from) override { steps = from.number(); }

  std::uint64_t steps = 0;
};

hl::GradBucket bucket_of_two(double value) {
  return {0, 1, hl::Tensor::full({2}, value), std::make_shared<hl::BucketLayout>(hl::layout_of({{2}}))};
}

void keeps_its_state(const std::shared_ptr<hl::ProcessGroup>& group) {
  CountingHook hook(group);
  hook.end_step(hl::HookStep{});
  const std::vector<std::byte> bytes = hl::save_state(hook, *group);
  CountingHook resumed(group);
  hl::load_state(resumed, *group, bytes);
  expect(resumed.steps == 1);
}

void functions(const std::shared_ptr<hl::ProcessGroup>& group) {
  const hl::HookFunction first_of_all = [&](hl::GradBucket& bucket) -> hl::Future<hl::Tensor> {
    co_await group->broadcast(bucket.buffer());
    co_return bucket.buffer();
  };
  const hl::HookWrapper halved = [](hl::HookPtr inner, hl::GradBucket& bucket) -> hl::Future<hl::Tensor> {
    const hl::Tensor result = co_await hl::run_and_parse(inner, bucket);
    result *= 0.5;
    co_return result;
  };
  const hl::HookPtr hook = hl::wrap(hl::make_hook(first_of_all), halved, "halved");
  hl::GradBucket bucket = bucket_of_two(group->rank() + 1);
  expect(hl::run_and_parse(hook, bucket).wait().data<float>()[0] == 0.5f);
}

void by_name(const std::shared_ptr<hl::ProcessGroup>& group) {
  const hl::HookFactory factory = [](std::shared_ptr<hl::ProcessGroup>, hl::HookOptions& options, hl::HookPtr inner) {
    const double factor = options.number("by", 2);
    return hl::wrap(std::move(inner), [factor](hl::HookPtr hook, hl::GradBucket& bucket) -> hl::Future<hl::Tensor> {
      const hl::Tensor result = co_await hl::run_and_parse(hook, bucket);
      result *= factor;
      co_return result;
    });
  };
  hl::register_hook("scaled", hl::HookPlace::around, factory, "multiplies what the inner hook gives");
  const hl::HookPtr hook = hl::make_hook("allreduce | scaled(by=3)", group);
  hl::GradBucket bucket = bucket_of_two(1);
  expect(hl::run_and_parse(hook, bucket).wait().data<float>()[0] == 3);

  for (const hl::HookDescription& known : hl::registered_hooks()) {
    if (known.name != "scaled") continue;
    std::printf("%s: %s;", known.name.c_str(), known.description.c_str());
    for (const hl::HookOption& option : hl::hook_options(known.name)) {
      std::printf(" %s, %s, is %s unless given", option.name.c_str(), option.expected.c_str(),
                  option.otherwise.c_str());
    }
    std::printf("\n");
  }
  hl::unregister_hook("scaled");
}

}  // namespace

int main() {
  const auto group = hl::init_process_group();
  const hl::HookPtr counting = std::make_shared<CountingHook>(group);
  hl::GradBucket bucket = bucket_of_two(1);
  expect(hl::run_and_parse(counting, bucket).wait().data<float>()[1] == float(group->size()));
  for (const hl::HookCost& cost : counting->costs()) expect(cost.sent_bytes == 8);
  keeps_its_state(group);
  functions(group);
  by_name(group);
}
