// Steps parameters by their gradients, and remembers what it must of each.
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

class StateReader;
class StateWriter;

/// A parameter with its gradient, of the same shape and dtype. What is remembered of it goes by its name.
struct NamedGradient {
  std::string name;
  Tensor parameter;
  Tensor gradient;
};

/// What an optimizer remembers of a parameter, under the names that torch.optim has for it.
struct ParameterState {
  std::uint64_t step = 0;  ///< how often it was stepped
  std::map<std::string, Tensor> tensors = {};
};

/// The optimizers of torch.optim on float32 and float64 parameters in any layout; see SGD, Adam and AdamW. Different
/// parameters may be stepped by several threads at once; everything else is for one thread at a time.
class HOOKLINE_EXPORT Optimizer {
 public:
  using Options = std::map<std::string, double>;  ///< truth values are 0 or 1

  explicit Optimizer(std::string name);
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;
  virtual ~Optimizer();

  /// Changes the parameter in place; the gradient, multiplied by `scale`, stays as it is. InvalidArgument for shapes or
  /// dtypes that differ, a read-only parameter, and a name under which a parameter of another shape is remembered;
  /// Unsupported for dtypes other than float32 and float64.
  void step(const std::string& name, const Tensor& parameter, const Tensor& gradient, double scale = 1);
  void step(const std::vector<NamedGradient>& all, double scale = 1);

  /// "sgd", "adam" or "adamw".
  const std::string& name() const noexcept { return name_; }
  virtual Options options() const = 0;
  /// Other values for some of them, from the next step on: InvalidArgument where there is no such option, or it cannot
  /// have that value. Nothing has changed then.
  void set_options(const Options& some);
  double lr() const { return options().at("lr"); }
  void set_lr(double lr) { set_options({{"lr", lr}}); }
  /// What make_optimizer makes the same of: "sgd(lr=0.1, momentum=0.9)".
  std::string text() const;

  /// Copies of what is remembered, and putting it in place. InvalidArgument naming what does not belong here.
  std::map<std::string, ParameterState> state() const;
  void set_state(const std::map<std::string, ParameterState>& state);

  /// Options and state. InvalidArgument for those of another optimizer.
  void save(StateWriter& to) const;
  void load(StateReader& from);

 protected:
  /// What is remembered of one parameter; a tensor is made when it is first needed.
  struct Slot {
    std::uint64_t step = 0;  ///< that of the step under way
    std::vector<std::optional<Tensor>> tensors;
  };
  /// The arrays of a step, contiguous, of one dtype.
  struct Arrays {
    DType dtype;
    std::byte* parameters;
    const std::byte* gradients;
    std::size_t count;
    const Tensor& like;  ///< the parameter, for its shape
  };

  /// The tensor's memory, zero where it was not there.
  static std::byte* tensor_of(Slot& slot, std::size_t number, const Arrays& arrays);

 private:
  virtual void assign(const Options& all) = 0;  ///< checks them first
  virtual const std::vector<std::string>& state_names() const = 0;
  virtual void apply(Slot& slot, const Arrays& arrays, double scale) = 0;

  Slot& slot_of(const std::string& name, const Tensor& parameter);

  const std::string name_;
  mutable std::mutex mutex_;  ///< of the map, not of what is in it
  std::unordered_map<std::string, std::unique_ptr<Slot>> slots_;
};

using OptimizerPtr = std::shared_ptr<Optimizer>;

/// The optimizer of a text, with options in parentheses: "sgd(lr=0.1, momentum=0.9)", "adamw". InvalidArgument listing
/// what there is for names and options that do not exist.
HOOKLINE_EXPORT OptimizerPtr make_optimizer(std::string_view text);

/// Options and state as bytes, and back.
HOOKLINE_EXPORT std::vector<std::byte> save_state(const Optimizer& optimizer);
HOOKLINE_EXPORT void load_state(Optimizer& optimizer, std::span<const std::byte> state);

}  // namespace hookline
