// Optimizer: the base class of optimizers with per-parameter state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

class Reducer;
class StateReader;
class StateWriter;

/// A parameter and its gradient, of the same shape and dtype. The name identifies the parameter's state.
struct NamedGradient {
  std::string name;
  Tensor parameter;
  Tensor gradient;
};

/// The state of a parameter, with the names of torch.optim.
struct ParameterState {
  std::uint64_t step = 0;  ///< number of steps taken
  std::map<std::string, Tensor> tensors = {};
};

/// The base class of SGD, Adam and AdamW, which follow torch.optim. Parameters are float32 or float64 in any layout.
/// step() may run concurrently for different parameters; all other calls need external synchronization.
class HOOKLINE_EXPORT Optimizer {
 public:
  using Options = std::map<std::string, double>;  ///< booleans are 0 or 1

  explicit Optimizer(std::string name);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Updates the parameter in place with `gradient` times `scale`; the gradient is not modified. Throws InvalidArgument
  /// for different shapes or dtypes, a read-only parameter, and state of another shape under this name; Unsupported for
  /// dtypes other than float32 and float64.
  void step(const std::string& name, const Tensor& parameter, const Tensor& gradient, double scale = 1);
  void step(const std::vector<NamedGradient>& gradients, double scale = 1);
  /// Updates all parameters of a reducer with their reduced gradients, after finalize(). Parameters that no rank used
  /// are not updated. Throws, before the first update, the errors above, InvalidArgument if the gradients are not
  /// reduced, and Unsupported if the reducer has sparse parameters.
  void step(Reducer& reducer, double scale = 1);

  /// "sgd", "adam" or "adamw".
  const std::string& name() const noexcept { return name_; }
  virtual Options options() const = 0;
  /// Changes some of the options from the next step on. Throws InvalidArgument, without a change, for unknown options
  /// or invalid values.
  void set_options(const Options& changes);
  double lr() const { return options().at("lr"); }
  void set_lr(double lr) { set_options({{"lr", lr}}); }
  /// Returns the spec that make_optimizer accepts: "sgd(lr=0.1, momentum=0.9)".
  std::string spec() const;

  /// Returns a copy of the state of all parameters, or replaces it. set_state() throws InvalidArgument for tensors that
  /// do not belong to this optimizer.
  std::map<std::string, ParameterState> state() const;
  void set_state(const std::map<std::string, ParameterState>& state);

  /// Write and read options and state, for a hook that contains an optimizer; users call save_state and load_state.
  /// load() throws InvalidArgument if another kind of optimizer saved them.
  void save(StateWriter& writer) const;
  void load(StateReader& reader);

 protected:
  /// The state of one parameter. Tensors are allocated on first use.
  struct ParameterSlot {
    std::uint64_t step = 0;  ///< number of the current step, from 1
    std::vector<std::optional<Tensor>> tensors;
  };
  /// The contiguous arrays of a step.
  struct StepArrays {
    DType dtype;
    std::byte* parameters;
    const std::byte* gradients;
    std::size_t count;
    const Tensor& parameter;  ///< provides the shape of new state tensors
  };

  /// Returns the memory of a state tensor; allocates it with zeros on first use.
  static std::byte* state_data(ParameterSlot& slot, std::size_t index, const StepArrays& arrays);

 private:
  virtual void assign_options(const Options& options) = 0;  ///< validates them first
  virtual const std::vector<std::string>& state_names() const = 0;
  virtual void apply_step(ParameterSlot& slot, const StepArrays& arrays, double scale) = 0;

  ParameterSlot& find_or_add_slot(const std::string& name, const Tensor& parameter);

  const std::string name_;
  mutable std::mutex mutex_;  ///< protects the map, not the slots
  std::unordered_map<std::string, std::unique_ptr<ParameterSlot>> slots_;
};

using OptimizerPtr = std::shared_ptr<Optimizer>;

/// Returns the optimizer of a spec such as "sgd(lr=0.1, momentum=0.9)" or "adamw". Throws InvalidArgument for an
/// unknown name or option, listing the known ones.
HOOKLINE_EXPORT OptimizerPtr make_optimizer(std::string_view spec);

/// Returns options and state, or restores saved ones. load_state throws InvalidArgument if they were saved by another
/// kind of optimizer, and for corrupt bytes.
HOOKLINE_EXPORT std::vector<std::byte> save_state(const Optimizer& optimizer);
HOOKLINE_EXPORT void load_state(Optimizer& optimizer, std::span<const std::byte> state);

}  // namespace hookline
