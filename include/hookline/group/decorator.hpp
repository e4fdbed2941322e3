// A process group around another one: everything goes on to the inner group unless a derived class has it otherwise.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/group/process_group.hpp>

namespace hookline {

/// Decorators stack, and go around native groups and those written in Python alike. Most override run() alone; one that
/// wants the groups of some of the ranks to be decorated, too, overrides decorate().
class HOOKLINE_EXPORT GroupDecorator : public ProcessGroup {
 public:
  /// InvalidArgument where there is no inner group.
  explicit GroupDecorator(std::shared_ptr<ProcessGroup> inner);

  const std::shared_ptr<ProcessGroup>& inner() const noexcept { return inner_; }

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string backend_name() const override { return inner_->backend_name(); }
  std::string group_name() const override { return inner_->group_name(); }
  std::string description() const override { return inner_->description(); }
  Capabilities capabilities() const override { return inner_->capabilities(); }
  WorkPtr run(Collective collective) override { return inner_->run(std::move(collective)); }
  /// One whose run() does not start the inner group's operation at once has to coalesce on its own.
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
  /// Puts another group, or none at the end of its life, in the place of the inner one, which it returns.
  std::shared_ptr<ProcessGroup> exchange_inner(std::shared_ptr<ProcessGroup> group) noexcept {
    return std::exchange(inner_, std::move(group));
  }
  /// What new_group() and split() return for a group that the inner one made; never called with null. All ranks of the
  /// new group have the same `label`, "group2of0_3", and no other group that was made here has it.
  virtual std::shared_ptr<ProcessGroup> decorate(std::shared_ptr<ProcessGroup> group, const std::string& label);

 private:
  std::shared_ptr<ProcessGroup> inner_;
  std::atomic<std::uint64_t> parts_ = 0;  ///< calls of new_group and split, which all ranks make in the same order
};

}  // namespace hookline
