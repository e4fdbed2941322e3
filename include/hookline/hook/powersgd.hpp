// PowerSGD: gradients travel as two thin factors of each matrix (Vogels, Karimireddy, Jaggi 2019, algorithm 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include <hookline/core/dtype.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/tensor.hpp>
#include <hookline/group/process_group.hpp>
#include <hookline/hook/comm_hook.hpp>

namespace hookline {

namespace hook {
class PowerSGDMemory;
}

/// PyTorch's options under its names, and the format in which factors travel.
struct PowerSGDOptions {
  std::int64_t matrix_approximation_rank = 1;  ///< columns of a factor; never more than the matrix has rows or columns
  std::int64_t start_powerSGD_iter = 1000;     ///< steps of plain allreduce before
  double min_compression_rate = 2;             ///< matrices of which less would be saved are sent as they are
  bool use_error_feedback = true;              ///< what was lost is added to the next step's gradients
  bool warm_start = true;                      ///< a step begins with the factor that the one before ended with
  double orthogonalization_epsilon = 0;        ///< added to the norms by which columns are divided
  std::uint64_t random_seed = 0;               ///< of the factors to begin with; the same on all ranks
  std::int64_t compression_stats_logging_frequency = 10'000;  ///< steps from one report to the next
  bool batch_tensors_with_same_shape = false;  ///< changes nothing: all matrices of a bucket are sent together anyway
  DType wire = DType::f32;                     ///< or f16 or bf16, for the factors; sums are float32
};

/// What PowerSGD keeps between steps: errors and factors of every matrix, by the parameter's name, so that they are
/// found again when buckets are cut anew. For one model. May be asked from any thread; changed between steps only.
class HOOKLINE_EXPORT PowerSGDState {
 public:
  /// Without a group, that of the hook is used. InvalidArgument for options out of range, saying what is allowed.
  explicit PowerSGDState(std::shared_ptr<ProcessGroup> group = nullptr, const PowerSGDOptions& options = {});
  PowerSGDState(const PowerSGDState&) = delete;
  PowerSGDState& operator=(const PowerSGDState&) = delete;
  ~PowerSGDState();

  std::shared_ptr<ProcessGroup> group() const;
  void set_group(std::shared_ptr<ProcessGroup> group);
  PowerSGDOptions options() const;
  void set_options(const PowerSGDOptions& options);

  /// Steps up to now.
  std::uint64_t iter() const;
  /// Of all steps that compressed: elements before and after, and their ratio, 0 where there were none.
  struct Totals {
    double rate = 0;
    std::uint64_t before = 0;
    std::uint64_t after = 0;
  };
  Totals compression_stats() const;
  /// Has `report` called with the step and the totals in the first step that compresses and then every
  /// compression_stats_logging_frequency steps, by whoever runs the hook of the last bucket; it must be short.
  using Report = std::function<void(std::uint64_t step, const Totals& totals)>;
  void set_report(Report report);
  /// The step from which on it is called next.
  std::uint64_t next_report() const;

  /// Copies of what is kept, by bucket: errors as long as the bucket, and the factors one behind the other.
  struct Kept {
    Tensor errors, p, q;
  };
  std::map<std::size_t, Kept> kept() const;

  void save(StateWriter& to) const;
  /// A parameter of another shape is named by the next step.
  void load(StateReader& from);

 private:
  friend class PowerSGDHook;

  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<hook::PowerSGDMemory> memory_;
};

/// The mean over all ranks, approximated by a product of two factors for each matrix of a bucket, or, `batched`, for
/// the whole bucket as one square matrix. A gradient of more than two dimensions is a matrix of its first dimension by
/// the others. Two collectives for each bucket; what is not compressed travels with the first.
///
/// Arithmetic is float32 whatever the gradients are. All ranks end with the same bits. A NaN or an infinity makes its
/// matrix NaN in that step; its errors begin anew at zero, and its factors with drawn ones.
class HOOKLINE_EXPORT PowerSGDHook final : public CppCommHookInterface<std::shared_ptr<PowerSGDState>> {
 public:
  /// The group is that of the state where it has one. InvalidArgument where neither has, or there is no state.
  explicit PowerSGDHook(std::shared_ptr<PowerSGDState> state, bool batched = false,
                        std::shared_ptr<ProcessGroup> group = nullptr);

  /// Throws InvalidArgument naming the first parameter that differs where the state is of another model.
  Future<HookResult> run_hook(GradBucket& bucket) override;
  void begin_step(const HookStep& step) override;
  void end_step(const HookStep& step) override;
  void give_up(const std::string& cause) override;
  bool keep_error() override;
  std::vector<HookCost> costs() const override;
  void save(StateWriter& to) const override;
  void load(StateReader& from) override;

  const std::shared_ptr<PowerSGDState>& state() const noexcept { return state_; }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const bool batched_;
};

}  // namespace hookline
