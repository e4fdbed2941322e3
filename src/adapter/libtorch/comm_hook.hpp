// A hook of this library for the buckets of PyTorch's DistributedDataParallel.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include <torch/csrc/distributed/c10d/comm.hpp>

#include "adapter/hook_lanes.hpp"

namespace hookline::libtorch {

/// Runs hooks on torch's buckets, in their memory. Python keeps one for each model; PyTorch's reducer has a
/// TorchCommHook that refers to it.
class BucketHook {
 public:
  /// Names are those of the parameters: hooks that keep something between steps find it again by them.
  static std::shared_ptr<BucketHook> make(std::shared_ptr<ProcessGroup> group, HookPtr hook,
                                          const std::vector<at::Tensor>& parameters,
                                          const std::vector<std::string>& names);
  BucketHook(std::shared_ptr<ProcessGroup> group, HookPtr hook, const std::vector<at::Tensor>& parameters,
             const std::vector<std::string>& names);

  /// The reduced buffer comes with the future. Its callbacks run on threads of CallbackPool where they may be a user's,
  /// else in the thread that ends the hook.
  c10::intrusive_ptr<c10::ivalue::Future> run(c10d::GradBucket& bucket, bool callbacks_may_block);

  /// Throws Aborted after close().
  std::shared_ptr<adapter::HookLanes> lanes() const;
  /// Lets go of group and hook: at the end of Python, which models may outlive.
  void close();

 private:
  struct Known {
    std::vector<const at::TensorImpl*> parameters;
    std::shared_ptr<const BucketLayout> layout;
  };
  std::shared_ptr<const BucketLayout> layout_of_bucket(const c10d::GradBucket& bucket);

  mutable std::mutex mutex_;  ///< guards what follows
  std::shared_ptr<adapter::HookLanes> lanes_;
  std::unordered_map<const at::TensorImpl*, std::string> names_;
  std::map<std::size_t, Known> known_;  ///< by bucket
  std::size_t bucket_count_ = 0;        ///< as the last step had it; PyTorch tells of the last bucket only
};

/// Closes those that live.
void close_bucket_hooks();

class TorchCommHook final : public c10d::CommHookInterface {
 public:
  explicit TorchCommHook(std::shared_ptr<BucketHook> hook) : hook_(std::move(hook)) {}
  c10::intrusive_ptr<c10::ivalue::Future> runHook(c10d::GradBucket& bucket) override;
  at::Tensor parseHookResult(const c10::IValue& result) override;

 private:
  const std::shared_ptr<BucketHook> hook_;
};

}  // namespace hookline::libtorch
