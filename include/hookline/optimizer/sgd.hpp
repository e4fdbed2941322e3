// Stochastic gradient descent.
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

/// As torch.optim.SGD. Remembers a momentum_buffer where there is a momentum.
class HOOKLINE_EXPORT SGD final : public Optimizer {
 public:
  /// InvalidArgument for values that are out of range, here and below.
  explicit SGD(const SGDOptions& options = {});
  Options options() const override;

 private:
  void assign(const Options& all) override;
  const std::vector<std::string>& state_names() const override;
  void apply(Slot& slot, const Arrays& arrays, double scale) override;

  SGDOptions options_;
};

}  // namespace hookline
