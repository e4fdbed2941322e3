// Adam and AdamW.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <hookline/optimizer/optimizer.hpp>

namespace hookline {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  std::optional<double> weight_decay = std::nullopt;  ///< default: 0 for Adam, 0.01 for AdamW
  bool amsgrad = false;
  bool maximize = false;
};

/// torch.optim.Adam. State: exp_avg, exp_avg_sq and, with amsgrad, max_exp_avg_sq.
class HOOKLINE_EXPORT Adam : public Optimizer {
 public:
  explicit Adam(const AdamOptions& options = {});
  Options options() const override;

 protected:
  Adam(std::string name, const AdamOptions& options, bool decoupled);

 private:
  void assign_options(const Options& options) override;
  const std::vector<std::string>& state_names() const override;
  void apply_step(ParameterSlot& slot, const StepArrays& arrays, double scale) override;

  AdamOptions options_;
  const bool decoupled_ = false;
};

/// torch.optim.AdamW: Adam with decoupled weight decay.
class HOOKLINE_EXPORT AdamW final : public Adam {
 public:
  explicit AdamW(const AdamOptions& options = {});
  ~AdamW() override;
};

}  // namespace hookline
