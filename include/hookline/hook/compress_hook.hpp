// CompressHook: sends gradients encoded by a codec, such as 16-bit casts and 8-bit or 4-bit integers.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include <hookline/codec/codec.hpp>
#include <hookline/core/export.hpp>
#include <hookline/group/compressed.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {
namespace hook {
class ResidualStore;
}

/// Averages gradients over all ranks with a compressed allreduce.
class HOOKLINE_EXPORT CompressHook final : public CppCommHookInterface<std::shared_ptr<ProcessGroup>> {
 public:
  /// `seed` seeds stochastic rounding and must be equal on all ranks. Throws InvalidArgument for a null group or codec.
  CompressHook(std::shared_ptr<ProcessGroup> group, CodecPtr codec, std::uint64_t seed = 0);
  ~CompressHook() override;

  Future<HookResult> run_hook(GradBucket& bucket) override;
  void begin_step(const HookStep& step) override;
  void end_step(const HookStep& step) override;
  bool enable_error_feedback() override;
  std::vector<HookStats> stats() const override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

 private:
  CompressedReduction& reduction_of(const GradBucket& bucket);

  const CodecPtr codec_;
  const std::uint64_t seed_;
  bool error_feedback_ = false;
  mutable std::mutex mutex_;  ///< guards the fields below; several threads launch buckets
  std::map<std::size_t, std::unique_ptr<CompressedReduction>> reductions_;  ///< by bucket index
  const std::unique_ptr<hook::ResidualStore> residuals_;
  std::uint64_t steps_ = 0;  ///< number of begin_step calls, including those before a resume
  /// The reducer's current step. Empty outside a reducer, where each bucket has its own step counter.
  std::optional<std::uint64_t> step_;
};

}  // namespace hookline
