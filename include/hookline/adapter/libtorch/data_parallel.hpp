// Data-parallel training of a libtorch module: gradients are averaged over the ranks while backward() runs.
#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <hookline/adapter/libtorch/gradient_averager.hpp>

namespace hookline::libtorch {

/// Wraps a module, a shared_ptr of one or a holder made by TORCH_MODULE. Every rank makes one of the same module and
/// takes the same steps; rank 0's parameters, also frozen ones, and buffers are handed to all. When backward() returns
/// the gradients hold the means; its errors arrive there. The module's gradients may be set to zero or to nothing
/// between steps.
template <class Net>
class DistributedDataParallel {
 public:
  /// Throws InvalidArgument where nothing is to train, for a hook that there is not, Mismatch where the ranks' modules
  /// differ.
  DistributedDataParallel(std::shared_ptr<Net> net, const std::shared_ptr<ProcessGroup>& group,
                          DataParallelOptions options = {})
      : net_(std::move(net)), averager_(GradientAverager::make(net_, group, options)) {}
  template <class Holder>
    requires std::is_base_of_v<torch::nn::ModuleHolder<Net>, Holder>
  DistributedDataParallel(const Holder& net, const std::shared_ptr<ProcessGroup>& group,
                          DataParallelOptions options = {})
      : DistributedDataParallel(net.ptr(), group, std::move(options)) {}

  /// The module's forward().
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

  /// Gradients of forward passes while one lives add up on each rank, wherever backward() is called; the first
  /// backward() of another forward pass reduces the sums. Outputs are looked for in tensors, optionals, tuples and
  /// ranges; where forward() returns anything else, it counts when backward() is called.
  class NoSync {
   public:
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;
    ~NoSync() { averager_->synchronise(before_); }

   private:
    friend class DistributedDataParallel;
    explicit NoSync(std::shared_ptr<GradientAverager> averager)
        : averager_(std::move(averager)), before_(averager_->synchronise(false)) {}

    const std::shared_ptr<GradientAverager> averager_;
    const bool before_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(averager_); }

  /// Numbers the steps that begin from now on, as Reducer::set_step_id.
  void set_step_id(std::optional<std::int64_t> id) { averager_->reducer().set_step_id(id); }

  /// For uneven inputs: runs `steps`, then takes part in the other ranks' steps with zeros until all are through.
  void join(const std::function<void()>& steps, const JoinOptions& options = {}) { averager_->join(steps, options); }

  /// Another hook from the next step on: a text, or one that was made. InvalidArgument inside a step.
  void replace_comm_hook(const std::string& text) { averager_->reducer().replace_hook(make_hook(text, group())); }
  void replace_comm_hook(HookPtr hook) { averager_->reducer().replace_hook(std::move(hook)); }
  /// Of the last step.
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
