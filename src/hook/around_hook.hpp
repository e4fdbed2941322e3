// The hook around another one.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <hookline/hook/comm_hook.hpp>

namespace hookline::hook {

/// A tensor as what a hook's Future carries.
Future<HookResult> as_result(Future<Tensor> reduced);

/// Does something around the inner hook in run(), and leaves everything else to that one. What has more to do overrides
/// more.
class AroundHook : public CommHookInterface {
 public:
  /// InvalidArgument where there is no inner hook. `scales` as in HookTraits; true in any case if the inner hook does.
  AroundHook(HookPtr inner, const std::string& name, bool scales = false);

  Future<HookResult> run_hook(GradBucket& bucket) final;
  Tensor parse_hook_result(const HookResult& result) override { return tensor_of(result); }

  void begin_step(const HookStep& step) override { inner_->begin_step(step); }
  void end_step(const HookStep& step) override { inner_->end_step(step); }
  void give_up(const std::string& cause) override { inner_->give_up(cause); }
  /// Error feedback goes around the innermost hook, whose contribution is in the units of the gradients it gets.
  /// InvalidArgument naming that hook where it neither keeps its errors nor reports its contribution.
  bool keep_error() override;
  std::vector<HookCost> costs() const override { return inner_->costs(); }
  void save(StateWriter& to) const override { inner_->save(to); }
  void load(StateReader& from) override { inner_->load(from); }

 protected:
  const HookPtr& inner() const noexcept { return inner_; }

 private:
  /// May be a coroutine: this hook and the bucket live until its Future is done.
  virtual Future<Tensor> run(GradBucket& bucket) = 0;

  HookPtr inner_;
};

}  // namespace hookline::hook
