// Post-local SGD: gradients are averaged over all ranks at first, later over a part of them.
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

/// What the hook goes by, under PyTorch's names. Only `iter`, the number of steps that were begun, changes.
struct HOOKLINE_EXPORT PostLocalSGDState {
  /// Without a part, that of the ranks of this host: then every rank of the group must make a state.
  /// InvalidArgument without a group, and for a negative start.
  PostLocalSGDState(std::shared_ptr<ProcessGroup> whole, std::shared_ptr<ProcessGroup> part, std::int64_t start,
                    bool allreduce = true);

  const std::shared_ptr<ProcessGroup> process_group;
  const std::shared_ptr<ProcessGroup> subgroup;  ///< null where it is not needed
  const std::uint64_t start_localSGD_iter;
  const bool post_local_gradient_allreduce;
  std::atomic<std::uint64_t> iter = 0;
};

/// The mean over all ranks in the first `start_localSGD_iter` steps, then over the subgroup, or nothing without
/// post_local_gradient_allreduce. From then on the ranks' parameters drift apart: a ModelAverager brings them together.
class HOOKLINE_EXPORT PostLocalSGDHook final : public CppCommHookInterface<std::shared_ptr<PostLocalSGDState>> {
 public:
  explicit PostLocalSGDHook(std::shared_ptr<PostLocalSGDState> state);
  Future<HookResult> run_hook(GradBucket& bucket) override;
  void begin_step(const HookStep& step) override;
  void end_step(const HookStep& step) override;
  void give_up(const std::string& cause) override;
  bool keep_error() override { return true; }  // nothing is lost
  void save(StateWriter& to) const override;
  void load(StateReader& from) override;

 private:
  std::optional<std::uint64_t> step_;  ///< that a reducer has begun; outside its steps the last buckets count them
};

}  // namespace hookline
