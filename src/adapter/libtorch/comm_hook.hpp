// Runs Hookline hooks on the buckets of PyTorch's DistributedDataParallel.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/distributed/c10d/comm.hpp>

#include "adapter/ddp_bucket_scheduler.hpp"

namespace hookline::libtorch {

/// Runs a hook on torch's buckets, in place. Python owns one for each model; PyTorch's reducer owns a TorchCommHook
/// that refers to it.
class BucketHook {
 public:
  /// `names` are the parameters' names, under which hooks store state between steps.
  static std::shared_ptr<BucketHook> make(std::shared_ptr<ProcessGroup> group, HookPtr hook,
                                          const std::vector<at::Tensor>& parameters,
                                          const std::vector<std::string>& names);
  BucketHook(std::shared_ptr<ProcessGroup> group, HookPtr hook, const std::vector<at::Tensor>& parameters,
             const std::vector<std::string>& names);

  /// Returns a future of the reduced buffer. Its callbacks run on the CallbackPool if they may block, otherwise in the
  /// thread that completes the hook.
  c10::intrusive_ptr<c10::ivalue::Future> run(c10d::GradBucket& bucket, bool callbacks_may_block);

  /// Throws Aborted after close().
  std::shared_ptr<adapter::DdpBucketScheduler> scheduler() const;
  /// Releases group and hook. Called when Python finalizes, since models may live longer.
  void close();

 private:
  struct CachedLayout {
    std::vector<const at::TensorImpl*> parameters;
    std::shared_ptr<const BucketLayout> layout;
  };
  std::shared_ptr<const BucketLayout> layout_of_bucket(const c10d::GradBucket& bucket);

  mutable std::mutex mutex_;  ///< guards the members below
  std::shared_ptr<adapter::DdpBucketScheduler> scheduler_;
  std::unordered_map<const at::TensorImpl*, std::string> parameter_names_;
  std::map<std::size_t, CachedLayout> layouts_;  ///< by bucket
  std::size_t bucket_count_ = 0;                 ///< of the previous step; PyTorch only marks the last bucket
};

/// Closes all live BucketHooks.
void close_bucket_hooks();

/// The hook that PyTorch's reducer calls; forwards to a BucketHook.
class TorchCommHook final : public c10d::CommHookInterface {
 public:
  explicit TorchCommHook(std::shared_ptr<BucketHook> hook) : hook_(std::move(hook)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  const std::shared_ptr<BucketHook> hook_;
};

}  // namespace hookline::libtorch
