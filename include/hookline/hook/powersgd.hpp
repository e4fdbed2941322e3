// PowerSGD: low-rank gradient compression (Vogels, Karimireddy, Jaggi 2019, algorithm 1).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
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

/// PyTorch's options under PyTorch's names, and the wire format of the factors.
struct PowerSGDOptions {
  std::int64_t matrix_approximation_rank = 1;  ///< columns of a factor; at most the smaller side of the matrix
  std::int64_t start_powerSGD_iter = 1000;     ///< steps of plain allreduce before compression starts
  double min_compression_rate = 2;             ///< matrices with a lower rate are sent uncompressed
  bool use_error_feedback = true;              ///< add the compression error to the next step's gradients
  bool warm_start = true;                      ///< reuse the previous step's factor Q
  double orthogonalization_epsilon = 0;        ///< added to column norms before division
  std::uint64_t random_seed = 0;               ///< of the initial factors; equal on all ranks
  std::int64_t compression_stats_logging_frequency = 10'000;  ///< steps between reports
  bool batch_tensors_with_same_shape = false;  ///< no effect: all matrices of a bucket are always sent together
  DType wire = DType::f32;                     ///< f32, f16 or bf16 for the factors; sums are float32
};

/// State of PowerSGD between steps: residual and factors of every matrix, by parameter name, so that they survive
/// rebucketing. Belongs to one model. Thread-safe to read; modify only between steps.
class HOOKLINE_EXPORT PowerSGDState {
 public:
  /// A null group selects the hook's group. Throws InvalidArgument for options out of range.
  explicit PowerSGDState(std::shared_ptr<ProcessGroup> group = nullptr, const PowerSGDOptions& options = {});
  PowerSGDState(const PowerSGDState&) = delete;
  PowerSGDState& operator=(const PowerSGDState&) = delete;
  ~PowerSGDState();

  std::shared_ptr<ProcessGroup> group() const;
  void set_group(std::shared_ptr<ProcessGroup> group);
  PowerSGDOptions options() const;
  void set_options(const PowerSGDOptions& options);

  /// Returns the number of steps so far.
  std::uint64_t iter() const;
  /// Totals over all compressed steps: elements before and after compression and their ratio, 0 if there were none.
  struct Totals {
    double rate = 0;
    std::uint64_t numel_before = 0;
    std::uint64_t numel_after = 0;
  };
  Totals compression_stats() const;
  /// Registers `report` to run in the first compressed step and then every compression_stats_logging_frequency steps,
  /// on the thread that runs the hook of the last bucket. It must be short.
  using Report = std::function<void(std::uint64_t step, const Totals& totals)>;
  void set_report(Report report);
  /// Returns the earliest step of the next report.
  std::uint64_t next_report() const;

  /// A copy of one bucket's state: the residual, of the bucket's size, and the concatenated factors P and Q.
  struct BucketState {
    Tensor residual, p, q;
  };
  std::map<std::size_t, BucketState> bucket_states() const;

 private:
  friend class PowerSGDHook;
  friend HOOKLINE_EXPORT std::vector<std::byte> save_state(const PowerSGDState& state);
  friend HOOKLINE_EXPORT void load_state(PowerSGDState& state, std::span<const std::byte> saved);

  std::shared_ptr<ProcessGroup> group_;
  std::unique_ptr<hook::PowerSGDMemory> memory_;
};

/// Return and restore the state without its hook; the saved state of a PowerSGDHook includes it. load_state throws
/// InvalidArgument if the options differ or the bytes are corrupt. If a parameter's shape has changed, the next step
/// throws.
HOOKLINE_EXPORT std::vector<std::byte> save_state(const PowerSGDState& state);
HOOKLINE_EXPORT void load_state(PowerSGDState& state, std::span<const std::byte> saved);

/// Averages over all ranks with a rank-r approximation P·Qᵀ of each matrix in a bucket, or, if `batched`, of the whole
/// bucket as one square matrix. A gradient with more than two dimensions is reshaped to a matrix: the first dimension
/// by the product of the others. Each bucket takes two allreduces; uncompressed tensors are part of the first.
///
/// Arithmetic is float32 for all dtypes. All ranks get the same bits. A NaN or infinity makes its matrix NaN in that
/// step and resets its residual to zero and its factors to random ones.
class HOOKLINE_EXPORT PowerSGDHook final : public CppCommHookInterface<std::shared_ptr<PowerSGDState>> {
 public:
  /// The state's group takes precedence over `group`. Throws InvalidArgument if both or the state are null.
  explicit PowerSGDHook(std::shared_ptr<PowerSGDState> state, bool batched = false,
                        std::shared_ptr<ProcessGroup> group = nullptr);

  /// Throws InvalidArgument naming the first differing parameter if the state belongs to another model.
  Future<HookResult> run_hook(GradBucket& bucket) override;
  void begin_step(const HookStep& step) override;
  void end_step(const HookStep& step) override;
  void on_step_failed(const std::string& cause) override;
  bool enable_error_feedback() override;
  std::vector<HookStats> stats() const override;
  void save(StateWriter& writer) const override;
  void load(StateReader& reader) override;

  const std::shared_ptr<PowerSGDState>& state() const noexcept { return state_; }

 private:
  const std::shared_ptr<ProcessGroup> group_;
  const bool batched_;
};

}  // namespace hookline
