// Hooks that send gradients encoded: casts to 16 bits, and integers of 8 and 4 bits.
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
class KeptErrors;
}

/// The mean over all ranks of gradients that travel as the codec packs them.
class HOOKLINE_EXPORT CompressHook final : public CppCommHookInterface<std::shared_ptr<ProcessGroup>> {
 public:
  /// The seed is that of stochastic rounding, the same on all ranks. InvalidArgument where group or codec is missing.
  CompressHook(std::shared_ptr<ProcessGroup> group, CodecPtr codec, std::uint64_t seed = 0);
  ~CompressHook() override;

  Future<HookResult> run_hook(GradBucket& bucket) override;
  void begin_step(const HookStep& step) override;
  void end_step(const HookStep& step) override;
  bool keep_error() override;
  std::vector<HookCost> costs() const override;
  void save(StateWriter& to) const override;
  void load(StateReader& from) override;

 private:
  CompressedReduction& reduction_of(const GradBucket& bucket);

  const CodecPtr codec_;
  const std::uint64_t seed_;
  bool error_feedback_ = false;
  mutable std::mutex mutex_;  ///< buckets are launched by several threads; guards what follows
  std::map<std::size_t, std::unique_ptr<CompressedReduction>> reductions_;  ///< by bucket
  const std::unique_ptr<hook::KeptErrors> errors_;
  std::uint64_t steps_ = 0;            ///< of reducers, also of the run that was resumed
  std::optional<std::uint64_t> step_;  ///< that a reducer has begun; outside its steps each bucket counts its own
};

}  // namespace hookline
