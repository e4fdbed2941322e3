// HookWrapper: base class of hooks that wrap another hook.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <hookline/hook/comm_hook.hpp>

namespace hookline::hook {

/// Converts a Future of a Tensor to the result type of hooks.
Future<HookResult> as_result(Future<Tensor> reduced);

/// Derived classes implement run(), which calls the inner hook. All other calls are forwarded to the inner hook.
class HookWrapper : public CommHookInterface {
 public:
  /// `applies_scale` is as in HookTraits; it is true also if the inner hook applies the scale. Throws InvalidArgument
  /// if `inner` is null.
  HookWrapper(HookPtr inner, const std::string& name, bool applies_scale = false);

  Future<HookResult> run_hook(GradBucket& bucket) final;
  Tensor parse_hook_result(const HookResult& result) override { return tensor_of(result); }

  void begin_step(const HookStep& step) override { inner_->begin_step(step); }
  void end_step(const HookStep& step) override { inner_->end_step(step); }
  void on_step_failed(const std::string& cause) override { inner_->on_step_failed(cause); }
  /// Applies error feedback to the innermost hook, because wrappers may change the buffer that the hook's contribution
  /// refers to. Throws InvalidArgument naming that hook if it neither implements error feedback nor reports its
  /// contribution.
  bool enable_error_feedback() override;
  std::vector<HookStats> stats() const override { return inner_->stats(); }
  void save(StateWriter& writer) const override { inner_->save(writer); }
  void load(StateReader& reader) override { inner_->load(reader); }

 protected:
  const HookPtr& inner() const noexcept { return inner_; }

 private:
  /// May be a coroutine: this hook and the bucket outlive the Future.
  virtual Future<Tensor> run(GradBucket& bucket) = 0;

  HookPtr inner_;
};

}  // namespace hookline::hook
