// The part of DistributedDataParallel that does not depend on the module's type: connects autograd with a Reducer.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <ranges>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/node.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/nn/modules/embedding.h>

#include <hookline/adapter/libtorch/tensor_views.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/reducer/broadcast_coalesced.hpp>
#include <hookline/reducer/reducer.hpp>

namespace hookline::libtorch {

/// Options of DistributedDataParallel. Options that PyTorch also has use its names.
struct DataParallelOptions {
  HookOrSpec hook = {};                                ///< a hook spec or a hook; none: allreduce
  std::optional<double> bucket_cap_mb = std::nullopt;  ///< in MiB; default: 1 for the first bucket, 25 for others
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool broadcast_buffers = true;  ///< from rank 0, before each forward() that follows a synchronized pass
  GradientReduction reduction = GradientReduction::mean;
  std::optional<Milliseconds> timeout = std::nullopt;  ///< time limit of a hook; default: the group's timeout
};

/// The implementation of one DistributedDataParallel. One thread at a time runs steps.
class GradientAverager : public std::enable_shared_from_this<GradientAverager> {
 public:
  static std::shared_ptr<GradientAverager> make(std::shared_ptr<torch::nn::Module> module,
                                                const std::shared_ptr<ProcessGroup>& group,
                                                const DataParallelOptions& options) {
    if (!module || !group) {
      throw InvalidArgument(std::string("DistributedDataParallel: ") + (module ? "group" : "module") +
                            " must not be null");
    }
    std::shared_ptr<GradientAverager> made(new GradientAverager(std::move(module), group, options));
    for (const std::size_t i : made->trainable_) made->register_hook(i);
    return made;
  }
  GradientAverager(const GradientAverager&) = delete;
  GradientAverager& operator=(const GradientAverager&) = delete;
  ~GradientAverager() {
    for (const RegisteredHook& one : registered_hooks_) one.node->del_post_hook(one.key);
  }

  /// Broadcasts the buffers from rank 0 if the ranks may have changed them in a synchronized pass.
  void before_forward() {
    const bool reduces = synchronized_ && at::GradMode::is_enabled();
    if (reduces && pass_.expired()) discard_failed_step();
    if (options_.broadcast_buffers && buffers_stale_) broadcast_buffers();
    buffers_stale_ = reduces;
  }
  /// Registers hooks on the outputs, so that their backward pass is reduced if this forward pass is synchronized.
  template <class Outputs>
  void after_forward(const Outputs& outputs) {
    if (!at::GradMode::is_enabled()) return;
    for_each_tensor(outputs, [&](const at::Tensor& output) {
      // A leaf would keep the hook in later passes.
      if (!output.defined() || !output.requires_grad() || output.is_leaf()) return;
      output.register_hook([own = weak_from_this(), averages = synchronized_](const at::Tensor&) {
        if (const auto averager = own.lock()) averager->begin_pass(averages);
      });
    });
  }
  /// Turns the reduction of subsequent forward passes on or off; returns the previous state.
  bool set_synchronized(bool on) noexcept { return std::exchange(synchronized_, on); }

  void join(const std::function<void()>& steps, const JoinOptions& options) {
    const bool broadcasts_buffers = std::exchange(options_.broadcast_buffers, false);
    try {
      reducer_->join(steps, options);
    } catch (...) {
      options_.broadcast_buffers = broadcasts_buffers;
      throw;
    }
    options_.broadcast_buffers = broadcasts_buffers;
  }

  Reducer& reducer() noexcept { return *reducer_; }

 private:
  using NodePtr = decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()));
  struct RegisteredHook {
    NodePtr node;
    std::uintptr_t key;
  };

  /// A running backward pass.
  struct BackwardPass {
    bool reduces = false;
  };

  /// Calls `f` with every tensor in nested optionals, tuples and ranges.
  template <class Value, class Function>
  static void for_each_tensor(const Value& value, const Function& f) {
    if constexpr (std::is_same_v<Value, at::Tensor>) {
      f(value);
    } else if constexpr (requires {
                           value.has_value();
                           *value;
                         }) {
      if (value.has_value()) for_each_tensor(*value, f);
    } else if constexpr (requires {
                           value.key();
                           value.value();
                         }) {  // an item of torch::OrderedDict
      for_each_tensor(value.value(), f);
    } else if constexpr (requires { std::tuple_size<Value>::value; }) {
      std::apply([&](const auto&... elements) { (for_each_tensor(elements, f), ...); }, value);
    } else if constexpr (std::ranges::range<const Value> && !std::is_convertible_v<Value, std::string_view>) {
      for (const auto& element : value) for_each_tensor(element, f);
    }
  }

  /// Post hook of AccumulateGrad: runs after a gradient was accumulated into its parameter.
  class AccumulateHook final : public torch::autograd::FunctionPostHook {
   public:
    AccumulateHook(std::weak_ptr<GradientAverager> averager, std::size_t index)
        : averager_(std::move(averager)), index_(index) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& outputs,
                                              const torch::autograd::variable_list&) override {
      if (const auto averager = averager_.lock()) averager->on_gradient_added(index_);
      return outputs;
    }

   private:
    // Weak, since the parameters own this hook and may outlive the averager.
    const std::weak_ptr<GradientAverager> averager_;
    const std::size_t index_;
  };

  GradientAverager(std::shared_ptr<torch::nn::Module> module, const std::shared_ptr<ProcessGroup>& group,
                   const DataParallelOptions& options)
      : module_(std::move(module)), options_(options) {
    std::set<std::string> sparse;
    for (const auto& submodule : module_->named_modules()) {
      const auto* const embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(submodule.value().get());
      const auto* const bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(submodule.value().get());
      if ((embedding && embedding->options.sparse()) || (bag && bag->options.sparse())) {
        sparse.insert(submodule.key().empty() ? "weight" : submodule.key() + ".weight");
      }
    }
    std::vector<Parameter> parameters;
    for (const auto& named : module_->named_parameters()) {
      const bool trained = named.value().requires_grad();
      if (trained) trainable_.push_back(parameters.size());
      parameters_.push_back(named.value());
      parameters.push_back({.name = named.key(),
                            .tensor = trained ? tensor_view(named.value()) : memory_view(named.value()),
                            .sparse = trained && sparse.count(named.key()) > 0,
                            .frozen = !trained});
    }
    ReducerOptions reducer_options;
    if (options.bucket_cap_mb) reducer_options.limits = limits_of(*options.bucket_cap_mb);
    reducer_options.find_unused_parameters = options.find_unused_parameters;
    reducer_options.static_graph = options.static_graph;
    reducer_options.reduction = options.reduction;
    reducer_options.timeout = options.timeout;
    for (const auto& named : module_->named_buffers()) {
      reducer_options.buffers.push_back({named.key(), memory_view(named.value())});
    }
    reducer_ = std::make_unique<Reducer>(std::move(parameters), group, options.hook, reducer_options);
    options_.hook = {};  // the reducer owns the hook and may replace it
  }

  static BucketLimits limits_of(double bucket_cap_mb) {
    if (!(bucket_cap_mb > 0) || !std::isfinite(bucket_cap_mb)) {
      throw InvalidArgument("DistributedDataParallel: bucket_cap_mb: expected a positive number, got " +
                            std::to_string(bucket_cap_mb));
    }
    const auto bytes = static_cast<std::size_t>(bucket_cap_mb * (1 << 20));
    return {.first_bucket_bytes = bytes, .bucket_bytes = bytes};
  }

  void register_hook(std::size_t index) {
    NodePtr node = torch::autograd::impl::grad_accumulator(parameters_[index]);
    const std::uintptr_t key = node->add_post_hook(std::make_unique<AccumulateHook>(weak_from_this(), index));
    registered_hooks_.push_back({std::move(node), key});
  }

  /// Returns a view for copies between ranks: complex elements as pairs of reals, unsupported dtypes as integers of the
  /// same size.
  static Tensor memory_view(const at::Tensor& tensor) {
    if (tensor.is_complex()) return tensor_view(at::view_as_real(tensor.detach()));
    switch (tensor.scalar_type()) {
      case at::kByte:
      case at::kChar:
      case at::kShort:
      case at::kInt:
      case at::kLong:
      case at::kBool:
      case at::kHalf:
      case at::kBFloat16:
      case at::kFloat:
      case at::kDouble: return tensor_view(tensor);
      default: break;
    }
    const std::int64_t bytes = tensor.element_size();
    const at::ScalarType same_size = bytes == 1   ? at::kByte
                                     : bytes == 2 ? at::kShort
                                     : bytes == 4 ? at::kInt
                                                  : at::kLong;
    return tensor_view(tensor.detach().view(same_size));
  }

  void broadcast_buffers() {
    std::vector<Tensor> buffers;
    for (const at::Tensor& buffer : module_->buffers()) buffers.push_back(memory_view(buffer));
    if (!buffers.empty()) broadcast_coalesced(*reducer_->group(), buffers);
  }

  void on_gradient_added(std::size_t index) {
    const auto pass = pass_.lock();
    if (pass ? pass->reduces : begin_pass(synchronized_)) mark_ready(index);
    else accumulated_.insert(index);
  }

  /// Called when a backward pass reaches an output or a parameter. A backward pass is reduced if at least one of its
  /// forward passes is synchronized. Returns true if such a forward pass has been reached.
  bool begin_pass(bool reduces) {
    auto pass = pass_.lock();
    if (reduces && (!pass || !pass->reduces)) discard_failed_step();
    if (!pass) {
      pass = std::make_shared<BackwardPass>();
      pass_ = pass;
      // Runs at the end of this backward pass, in its thread, so backward() throws its exceptions. If the pass fails,
      // the autograd engine drops the callback.
      torch::autograd::Engine::get_default_engine().queue_callback(
          [self = shared_from_this(), kept = pass] { self->finish_pass(*kept); });
    }
    pass->reduces = pass->reduces || reduces;
    return pass->reduces;
  }

  /// Discards the step of a failed backward pass.
  void discard_failed_step() {
    if (ready_.empty()) return;
    reducer_->discard_step();
    ready_.clear();
  }

  void mark_ready(std::size_t index) {
    if (ready_.empty()) {
      for (const std::size_t unused : static_unused_) mark_unused(unused);
    }
    ready_.insert(index);
    with_gradient(index, [&](const auto& gradient) { reducer_->mark_ready(index, gradient); });
  }

  /// Marks a parameter that this pass does not reach. A gradient accumulated in earlier passes is still reduced.
  void mark_unused(std::size_t index) {
    if (!parameters_[index].grad().defined()) return;
    with_gradient(index, [&](const auto& gradient) { reducer_->mark_unused(index, gradient); });
  }

  template <class Function>
  void with_gradient(std::size_t index, const Function& function) {
    const at::Tensor& gradient = parameters_[index].grad();
    if (!gradient.is_sparse()) return function(tensor_view(gradient));
    const at::Tensor rows = gradient.coalesce();
    function(SparseGradient{tensor_view(rows.indices()[0]), tensor_view(rows.values())});
  }

  void finish_pass(const BackwardPass& pass) {
    pass_.reset();
    // A pass that accumulates no gradient, such as torch::autograd::grad, is not a step.
    if (!pass.reduces || ready_.empty()) return;
    for (const std::size_t index : std::exchange(accumulated_, {})) {
      if (ready_.count(index) == 0 && parameters_[index].grad().defined()) mark_ready(index);
    }
    std::vector<std::size_t> unmarked;
    for (const std::size_t i : trainable_) {
      if (ready_.count(i) == 0) unmarked.push_back(i);
    }
    const bool finds_unused = options_.find_unused_parameters || options_.static_graph;
    if (finds_unused && !graph_recorded_) {
      for (const std::size_t index : unmarked) mark_unused(index);
    }
    const std::set<std::size_t> ready = std::exchange(ready_, {});
    reducer_->finalize();
    std::set<std::string> unused;
    if (finds_unused) {
      for (std::string& name : reducer_->stats().unused) unused.insert(std::move(name));
    }
    for (const std::size_t i : trainable_) {
      const Parameter& parameter = reducer_->parameters()[i];
      if (unused.count(parameter.name) > 0) continue;
      at::Tensor& gradient = parameters_[i].mutable_grad();
      if (parameter.sparse) {
        const SparseGradient reduced = reducer_->sparse_gradient(parameter.name);
        gradient = at::sparse_coo_tensor(torch_view(reduced.indices).clone().unsqueeze(0),
                                         torch_view(reduced.values).clone(), parameters_[i].sizes());
      } else if (!gradient.defined() && ready.count(i) == 0) {  // used on other ranks only
        gradient = at::empty_like(parameters_[i].detach());
        reducer_->copy_gradient(i, tensor_view(gradient));
      }
    }
    if (options_.static_graph) {
      graph_recorded_ = true;
      static_unused_ = std::move(unmarked);
    }
  }

  const std::shared_ptr<torch::nn::Module> module_;
  DataParallelOptions options_;
  std::vector<at::Tensor> parameters_;  ///< frozen ones too; same indices as in the reducer
  std::vector<std::size_t> trainable_;  ///< indices of parameters that require gradients
  std::unique_ptr<Reducer> reducer_;
  std::vector<RegisteredHook> registered_hooks_;
  bool synchronized_ = true;
  bool buffers_stale_ = true;               ///< buffers may differ between ranks
  std::weak_ptr<BackwardPass> pass_;        ///< expired: no backward pass is running
  std::set<std::size_t> ready_;             ///< parameters ready in the running or failed pass
  std::set<std::size_t> accumulated_;       ///< parameters with gradients of unreduced passes
  bool graph_recorded_ = false;             ///< static_graph: the first step has recorded the unused parameters
  std::vector<std::size_t> static_unused_;  ///< static_graph: parameters unused on this rank
};

}  // namespace hookline::libtorch
