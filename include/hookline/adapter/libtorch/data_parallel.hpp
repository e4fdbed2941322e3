// DistributedDataParallel for libtorch modules: averages gradients over the ranks while backward() runs.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <hookline/adapter/libtorch/gradient_averager.hpp>

namespace hookline::libtorch {

/// Wraps a module: a shared_ptr, or a holder made by TORCH_MODULE. Collective: every rank wraps the same module and
/// runs the same steps. The constructor broadcasts parameters, frozen ones included, and buffers from rank 0. When
/// backward() returns, the gradients hold the means; if the reduction fails, backward() throws. Between steps the
/// caller may zero the gradients or set them to undefined tensors.
template <class Net>
class DistributedDataParallel {
 public:
  /// Throws InvalidArgument if no parameter requires a gradient or the hook is unknown, and Mismatch if the modules of
  /// the ranks differ.
  DistributedDataParallel(std::shared_ptr<Net> net, const std::shared_ptr<ProcessGroup>& group,
                          DataParallelOptions options = {})
      : net_(std::move(net)), averager_(GradientAverager::make(net_, group, options)) {}
  template <class Holder>
    requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Holder>
  DistributedDataParallel(const Holder& net, const std::shared_ptr<ProcessGroup>& group,
                          DataParallelOptions options = {})
      : DistributedDataParallel(net.ptr(), group, std::move(options)) {}

  /// Calls the module's forward().
  template <class... Inputs>
  auto forward(Inputs&&... inputs) {
    averager_->before_forward();
    if constexpr (std::is_void_v<decltype(net_->forward(std::forward<Inputs>(inputs)...))>) {
      net_->forward(std::forward<Inputs>(inputs)...);
    } else {
      auto outputs = net_->forward(std::forward<Inputs>(inputs)...);
      averager_->after_forward(outputs);
      return outputs;
    }
  }
  template <class... Inputs>
  auto operator()(Inputs&&... inputs) {
    return forward(std::forward<Inputs>(inputs)...);
  }

  const std::shared_ptr<Net>& module() const noexcept { return net_; }
  const std::shared_ptr<ProcessGroup>& group() const noexcept { return averager_->reducer().group(); }

  /// A scope in which forward passes accumulate gradients locally, wherever their backward() runs. The first backward()
  /// of a forward pass outside the scope reduces the sums. This requires that forward() returns tensors, or optionals,
  /// tuples or ranges of tensors. With other outputs, gradients accumulate if backward() itself runs in the scope.
  class NoSync {
   public:
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync() { averager_->set_synchronized(was_synchronized_); }

   private:
    friend class DistributedDataParallel;
    explicit NoSync(std::shared_ptr<GradientAverager> averager)
        : averager_(std::move(averager)), was_synchronized_(averager_->set_synchronized(false)) {}

    const std::shared_ptr<GradientAverager> averager_;
    const bool was_synchronized_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(averager_); }

  /// Sets the id of the following step, as Reducer::set_step_id.
  void set_step_id(std::optional<std::int64_t> id) { averager_->reducer().set_step_id(id); }

  /// Handles uneven inputs: runs `steps`, then joins the steps of the other ranks with zero gradients until all ranks
  /// are done.
  void join(const std::function<void()>& steps, const JoinOptions& options = {}) { averager_->join(steps, options); }

  /// Replaces the hook, given as a spec or an object, from the next step on. Throws InvalidArgument inside a step.
  void replace_comm_hook(const HookOrSpec& hook) { averager_->reducer().replace_hook(hook); }
  /// Returns the statistics of the last step.
  StepStats stats() const { return averager_->reducer().stats(); }

 private:
  std::shared_ptr<Net> net_;
  std::shared_ptr<GradientAverager> averager_;
};

template <class Net>
DistributedDataParallel(std::shared_ptr<Net>, std::shared_ptr<ProcessGroup>, DataParallelOptions = {})
    -> DistributedDataParallel<Net>;
template <class Holder>
  requires std::is_base_of_v<torch::nn::ModuleHolder<typename Holder::ContainedType>, Holder>
DistributedDataParallel(const Holder&, std::shared_ptr<ProcessGroup>, DataParallelOptions = {})
    -> DistributedDataParallel<typename Holder::ContainedType>;

}  // namespace hookline::libtorch
