// PowerSGDBucket: PowerSGD's state and computations of one bucket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hookline/core/tensor.hpp>
#include <hookline/group/compressed.hpp>
#include <hookline/group/process_group.hpp>

#include "hook/powersgd_plan.hpp"

namespace hookline::hook {

/// A step calls compute_p(), allreduce_p(), compute_q(), allreduce_q() and reconstruct(), in this order. With error
/// feedback, M (the gradients plus the previous residual) and the factors are kept until the next step: its compute_p()
/// computes the residual M - P·Qᵀ, so that reconstruct() need not update M.
class PowerSGDBucket {
 public:
  PowerSGDBucket(const GradBucket& bucket, PowerSGDPlan plan, const PowerSGDOptions& options, ProcessGroup& group);

  const std::shared_ptr<const BucketLayout>& layout() const noexcept { return layout_; }
  /// Returns the last step that ran this bucket.
  std::uint64_t step() const noexcept { return step_; }
  void begin_step(std::shared_ptr<const BucketLayout> layout, std::uint64_t step) {
    layout_ = std::move(layout);
    step_ = step;
  }
  const PowerSGDPlan& plan() const noexcept { return plan_; }

  /// Computes this rank's P.
  void compute_p(float* values, std::uint64_t step);
  /// Orthonormalizes the mean of P and computes this rank's Q.
  void compute_q(float* values);
  /// Writes the product of the factors to `values`.
  void reconstruct(float* values);

  /// Averages P and the uncompressed gradients over all ranks.
  Future<void> allreduce_p(const std::shared_ptr<ProcessGroup>& group);
  /// Averages Q over all ranks.
  Future<void> allreduce_q(const std::shared_ptr<ProcessGroup>& group);

  HookStats stats() const;

  /// Returns the residual, as long as the bucket; zero for uncompressed gradients.
  Tensor residual() const;
  /// Return the factors of the last step, or an empty tensor if it failed or there was none.
  Tensor p() const { return factors_valid_ ? p_.clone() : Tensor(); }
  Tensor q() const { return factors_valid_ ? q_.clone() : Tensor(); }

  /// Returns the tensor to which a restored residual must be written. Call before the first step.
  Tensor corrected_gradients() const { return corrected_gradients_; }
  /// Restores the factor Q of a matrix. Call before the first step.
  void set_q(const PowerSGDMatrix& matrix, const Tensor& q);

 private:
  CompressedReduction& reduction(std::unique_ptr<CompressedReduction>& slot,
                                 const std::shared_ptr<ProcessGroup>& group);
  Future<void> allreduce_mean(Tensor tensor, std::shared_ptr<ProcessGroup> group);
  Future<void> allreduce_mean_encoded(CompressedReduction& reduction, Tensor tensor);

  std::shared_ptr<const BucketLayout> layout_;
  std::uint64_t step_ = 0;
  const PowerSGDPlan plan_;
  const PowerSGDOptions options_;
  const std::size_t numel_;
  const int ranks_;
  Tensor corrected_gradients_;  ///< M, with error feedback only
  Tensor p_message_;            ///< buffer of the first allreduce: uncompressed gradients, then P of each matrix
  Tensor uncompressed_, p_;
  Tensor q_;
  std::vector<float> initial_q_;
  std::vector<bool> q_restored_;  ///< by matrix: Q was restored from a saved state or another bucket
  bool factors_valid_ = false;    ///< the last step completed, so p_ and q_ are its factors
  std::unique_ptr<CompressedReduction> p_reduction_, q_reduction_;
  std::uint64_t bytes_sent_ = 0;
  double encode_time_ = 0;
  double decode_time_ = 0;
};

}  // namespace hookline::hook
