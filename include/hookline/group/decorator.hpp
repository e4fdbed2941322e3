// Base class of debug wrappers and other group decorators.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// A process group that forwards every operation to an inner group, native or implemented in Python. Decorators can be
/// nested. Most override only run(); a decorator that also wraps subgroups overrides decorate().
class HOOKLINE_EXPORT GroupDecorator : public ProcessGroup {
 public:
  /// Throws InvalidArgument if `inner` is null.
  explicit GroupDecorator(std::shared_ptr<ProcessGroup> inner);

  const std::shared_ptr<ProcessGroup>& inner() const noexcept { return inner_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string backend_name() const override { return inner_->backend_name(); }
  std::string group_name() const override { return inner_->group_name(); }
  std::string description() const override { return inner_->description(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  WorkPtr run(Operation operation) override { return inner_->run(std::move(operation)); }
  /// A wrapper whose run() defers the inner group's operation must implement coalescing itself.
  void start_coalescing() override { inner_->start_coalescing(); }
  WorkPtr end_coalescing() override { return inner_->end_coalescing(); }
  void coalesce(const WorkPtr& work) override { inner_->coalesce(work); }
  Tensor empty(const Dims& shape, DType dtype) override { return inner_->empty(shape, dtype); }
  std::shared_ptr<ProcessGroup> new_group(const std::vector<int>& ranks) override;
  std::shared_ptr<ProcessGroup> split(int color, int key) override;
  Milliseconds timeout() const override { return inner_->timeout(); }
  void set_timeout(Milliseconds timeout) override { inner_->set_timeout(timeout); }
  std::uint64_t sequence_number() const override { return inner_->sequence_number(); }
  void register_on_completion_hook(OnCompletionHook hook, std::shared_ptr<Executor> executor) override {
    inner_->register_on_completion_hook(std::move(hook), std::move(executor));
  }
  void wait_for_hooks(std::optional<Milliseconds> timeout) override { inner_->wait_for_hooks(timeout); }
  void abort(const std::string& cause) override { inner_->abort(cause); }
  void shutdown() override { inner_->shutdown(); }

 protected:
  /// Replaces the inner group (null during destruction) and returns the previous one.
  std::shared_ptr<ProcessGroup> exchange_inner(std::shared_ptr<ProcessGroup> group) noexcept {
    return std::exchange(inner_, std::move(group));
  }
  /// Wraps a group that new_group() or split() of the inner group returned; never called with null. `label`, such as
  /// "group2of0_3", is the same on all ranks of the new group and unique among the subgroups of this group.
  virtual std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string& label);

 private:
  std::shared_ptr<ProcessGroup> inner_;
  std::atomic<std::uint64_t> num_subgroups_ =
      0;  ///< calls of new_group and split; all ranks make them in the same order
};

}  // namespace hookline
