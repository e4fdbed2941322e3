// Wraps a group implemented in Python, for a backend that may outlive Python.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hookline/core/error.hpp>
#include <hookline/group/process_group.hpp>

#include "group/group_identity.hpp"

namespace hookline::libtorch {

/// Forwards to another group until release(); afterwards every call throws Aborted. Thread-safe.
class ReleasableGroup final : public ProcessGroup, public group::ForwardingGroup {
 public:
  explicit ReleasableGroup(std::shared_ptr<ProcessGroup> group)
      : rank_(group->rank()), size_(group->size()), target_(group::identity_of(*group)), group_(std::move(group)) {}

  void release() { group_.store(nullptr); }
  std::shared_ptr<ProcessGroup> group() const {
    auto group = group_.load();
    if (!group) throw Aborted("process group: a group implemented in Python was called after Python finalized");
    return group;
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  const void* target() const noexcept override { return target_; }
  std::string backend_name() const override { return group()->backend_name(); }
  std::string group_name() const override { return group()->group_name(); }
  std::string description() const override { return group()->description(); }
  Capabilities capabilities() const override { return group()->capabilities(); }
  WorkPtr run(Operation operation) override { return group()->run(std::move(operation)); }
  void start_coalescing() override { group()->start_coalescing(); }
  WorkPtr end_coalescing() override { return group()->end_coalescing(); }
  void coalesce(const WorkPtr& work) override { group()->coalesce(work); }
  Tensor empty(const Dims& shape, DType dtype) override { return group()->empty(shape, dtype); }
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override { return group()->new_group(ranks); }
  std::shared_ptr<ProcessGroup> split(int color, int key) override { return group()->split(color, key); }
  Milliseconds timeout() const override { return group()->timeout(); }
  void set_timeout(Milliseconds timeout) override { group()->set_timeout(timeout); }
  std::uint64_t sequence_number() const override { return group()->sequence_number(); }
  void register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor) override {
    group()->register_on_completion_hook(std::move(hook), std::move(executor));
  }
  void wait_for_hooks(std::optional<Milliseconds> timeout) override { group()->wait_for_hooks(timeout); }
  void abort(const std::string& cause) override { group()->abort(cause); }
  void shutdown() override { group()->shutdown(); }

 private:
  const int rank_;
  const int size_;
  const void* const target_;
  std::atomic<std::shared_ptr<ProcessGroup>> group_;
};

}  // namespace hookline::libtorch
