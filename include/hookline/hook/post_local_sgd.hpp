// Post-local SGD: averages gradients over all ranks at first, later over a subgroup.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/builtin_hooks.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

/// State of the hook, with PyTorch's names. Only `iter`, the number of steps begun, changes.
struct HOOKLINE_EXPORT PostLocalSGDState {
  /// A null `given_subgroup` selects the ranks of this host; then every rank of the group must create a state. Throws
  /// InvalidArgument for a null group or a negative `start_iter`.
  PostLocalSGDState(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ProcessGroup> given_subgroup,
                    std::int64_t start_iter, bool gradient_allreduce = true);

  const std::shared_ptr<ProcessGroup> process_group;
  const std::shared_ptr<ProcessGroup> subgroup;  ///< null without post_local_gradient_allreduce
  const std::uint64_t start_localSGD_iter;
  const bool post_local_gradient_allreduce;
  std::atomic<std::uint64_t> iter = 0;
};

/// Averages over all ranks in the first `start_localSGD_iter` steps, then over the subgroup, or not at all without
/// post_local_gradient_allreduce. From then on the ranks' parameters diverge; a ModelAverager averages them.
class HOOKLINE_EXPORT PostLocalSGDHook final : public CppCommHookInterface<std::shared_ptr<PostLocalSGDState>> {
 public:
  explicit PostLocalSGDHook(std::shared_ptr<PostLocalSGDState> state);
  Future<HookResult> run_hook(GradBucket& bucket) override;
  void begin_step(const HookStep& step) override;
  void end_step(const HookStep& step) override;
  void on_step_failed(const std::string& cause) override;
  bool enable_error_feedback() override { return true; }  // lossless: the residual is always zero
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

 private:
  std::optional<std::uint64_t> step_;  ///< the reducer's current step; outside a reducer the last bucket counts steps
};

}  // namespace hookline
