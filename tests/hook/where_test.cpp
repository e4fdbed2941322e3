// Two hooks that share the buckets between them: both hear of every step.
#include <gtest/gtest.h>

#include <hookline/hook/wrappers.hpp>

namespace hookline {
namespace {

class Counting final : public CommHookInterface {
 public:
  Future<HookResult> run_hook(GradBucket& bucket) override { return Future<HookResult>::ready(bucket.buffer()); }
  Tensor parse_hook_result(const HookResult& result) override { return tensor_of(result); }
  void begin_step(const HookStep&) override { ++begun; }
  void end_step(const HookStep&) override { ++ended; }
  int begun = 0, ended = 0;
};

TEST(Where, BothHooksHearOfEveryStep) {
  const auto first = std::make_shared<Counting>();
  const auto second = std::make_shared<Counting>();
  const HookPtr both = where(first, {.name = "w*"}, second);
  both->begin_step({});
  for (const auto& hook : {first, second}) {
    EXPECT_EQ(hook->begun, 1);
    EXPECT_EQ(hook->ended, 0);
  }
  both->end_step({});
  for (const auto& hook : {first, second}) EXPECT_EQ(hook->ended, 1);
}

}  // namespace
}  // namespace hookline
