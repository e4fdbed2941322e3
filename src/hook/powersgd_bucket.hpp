// What PowerSGD keeps of one bucket, and what it does with it between the collectives of a step.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include <hookline/core/tensor.hpp>
#include <hookline/group/compressed.hpp>
#include <hookline/group/process_group.hpp>

#include "hook/powersgd_plan.hpp"

namespace hookline::hook {

/// A step is project(), reduce_first(), turn(), reduce_second(), expand(). In between, nothing of the gradients is kept
/// but M, the gradients with the errors added: the errors of a step are M less the product of the factors, and are
/// computed where they are used, in project() of the next step, so that decoding only writes.
class PowerSGDBucket {
 public:
  PowerSGDBucket(const GradBucket& bucket, PowerSGDPlan plan, const PowerSGDOptions& options, ProcessGroup& group);

  const std::shared_ptr<const BucketLayout>& layout() const noexcept { return layout_; }
  /// The last step that had this bucket.
  std::uint64_t step() const noexcept { return step_; }
  void begin(std::shared_ptr<const BucketLayout> layout, std::uint64_t step) {
    layout_ = std::move(layout);
    step_ = step;
  }
  const PowerSGDPlan& plan() const noexcept { return plan_; }

  /// P of this rank's gradients, in float32.
  void project(float* values, std::uint64_t step);
  /// From the mean of P to this rank's Q.
  void turn(float* values);
  /// From the mean of Q to the result.
  void expand(float* values);

  /// The mean over all ranks of P and of what is not compressed, and of Q.
  Future<void> reduce_first(const std::shared_ptr<ProcessGroup>& group);
  Future<void> reduce_second(const std::shared_ptr<ProcessGroup>& group);

  HookCost cost() const;

  /// The errors, as long as the bucket. Zero where nothing is compressed.
  Tensor errors() const;
  /// The factors of the last step, or nothing where a step was cut short or there was none.
  Tensor p() const { return whole_ ? p_.clone() : Tensor(); }
  Tensor q() const { return whole_ ? q_.clone() : Tensor(); }

  /// Errors and the factor of a matrix from elsewhere, before the first step.
  Tensor kept() const { return kept_; }
  void set_q(const PowerSGDMatrix& matrix, const Tensor& q);

 private:
  CompressedReduction& reduction(std::unique_ptr<CompressedReduction>& kept,
                                 const std::shared_ptr<ProcessGroup>& group);
  Future<void> mean(Tensor tensor, std::shared_ptr<ProcessGroup> group);
  Future<void> encoded_mean(CompressedReduction& reduction, Tensor tensor);

  std::shared_ptr<const BucketLayout> layout_;
  std::uint64_t step_ = 0;
  const PowerSGDPlan plan_;
  const PowerSGDOptions options_;
  const std::size_t count_;
  const int ranks_;
  Tensor kept_;   ///< M where there are errors to keep
  Tensor first_;  ///< what is not compressed, then the Ps
  Tensor rest_, p_;
  Tensor q_;
  std::vector<float> q_start_;
  std::vector<bool> q_given_;  ///< by matrix; of a state that was loaded or of other buckets
  bool whole_ = false;         ///< the last step went to its end: p_ and q_ are its factors
  std::unique_ptr<CompressedReduction> p_reduction_, q_reduction_;
  std::uint64_t sent_ = 0;
  double encode_time_ = 0;
  double decode_time_ = 0;
};

}  // namespace hookline::hook
