// SGD with momentum.
#pragma once

#include <string>
#include <vector>

#include <hookline/optimizer/optimizer.hpp>

namespace hookline {

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

/// torch.optim.SGD. State: momentum_buffer, if momentum is not 0.
class HOOKLINE_EXPORT SGD final : public Optimizer {
 public:
  /// Throws InvalidArgument for values that are out of range, like set_options().
  explicit SGD(const SGDOptions& options = {});
  Options options() const override;

 private:
  void assign_options(const Options& options) override;
  const std::vector<std::string>& state_names() const override;
  void apply_step(ParameterSlot& slot, const StepArrays& arrays, double scale) override;

  SGDOptions options_;
};

}  // namespace hookline
