// CommHookInterface: a communication hook reduces a bucket of gradients.
#pragma once

#include <any>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// The value of a hook's Future: the reduced buffer. Converts implicitly from a Tensor and from a vector of one Tensor,
/// as in PyTorch, and from nothing else, so a C++ hook that returns another type does not compile. A Tensor is stored
/// inline: unlike std::any, without an allocation.
class HOOKLINE_EXPORT HookResult {
 public:
  HookResult(Tensor reduced) : value_(std::move(reduced)) {}
  HookResult(std::vector<Tensor> reduced) : value_(std::move(reduced)) {}
  /// Wraps an object of another language, for bindings that override parse_hook_result.
  static HookResult opaque(std::any object) { return HookResult(Opaque{std::move(object)}); }

  /// Returns the object that opaque() wrapped; null for another type.
  template <class T>
  const T* opaque_as() const noexcept {
    const auto* opaque = std::get_if<Opaque>(&value_);
    return opaque ? std::any_cast<T>(&opaque->object) : nullptr;
  }

 private:
  struct Opaque {
    std::any object;
  };
  explicit HookResult(Opaque opaque) : value_(std::move(opaque)) {}
  friend HOOKLINE_EXPORT Tensor tensor_of(const HookResult& result);

  std::variant<Tensor, std::vector<Tensor>, Opaque> value_;
};

/// Returns the Tensor in the result of a C++ hook. Throws InvalidArgument unless it is a Tensor or a vector of one.
HOOKLINE_EXPORT Tensor tensor_of(const HookResult& result);

/// Static properties of a hook.
struct HookTraits {
  std::string name = {};   ///< for messages and statistics; empty: the class name
  bool may_block = false;  ///< run_hook may block; such hooks share one lane and run one at a time
  /// True if every run calls GradBucket::set_contribution, as with_error_feedback requires.
  bool reports_contribution = false;
  bool applies_scale = false;  ///< the hook applies HookStep::scale itself, since it updates parameters
};

class StateWriter;
class StateReader;

/// Properties of a step, which the reducer passes to its hook.
struct HookStep {
  /// True if `unused` is final. If false in begin_step, end_step has the final list.
  bool unused_known = true;
  std::vector<std::string> unused = {};  ///< parameters without a gradient on any rank
  /// Scale factor for the results, for example the number of ranks to turn a mean into a sum. The reducer applies it
  /// unless HookTraits::applies_scale is set.
  double scale = 1;
};

/// Statistics of a hook for one bucket of the last step.
struct HookStats {
  std::size_t bucket = 0;
  std::uint64_t values = 0;
  std::uint64_t bytes_sent = 0;  ///< by this rank
  double ratio = 1;              ///< bytes of an uncompressed allreduce divided by bytes_sent
  double encode_time = 0;        ///< seconds
  double decode_time = 0;
  double residual_norm = 0;  ///< norm of the residual of error feedback
  /// Relative error of the result; set by with_error_measurement.
  std::optional<double> relative_error = std::nullopt;
};

/// The hook interface: takes a bucket and returns a Future of the reduced buffer. The reducer calls run_hook once per
/// bucket and step, in bucket order. It keeps group, bucket and hook alive until the Future is done, so a coroutine may
/// take them by reference. Operations started by the hook run in the lane of its bucket, also after a co_await.
class HOOKLINE_EXPORT CommHookInterface {
 public:
  explicit CommHookInterface(HookTraits traits = {}) : traits_(std::move(traits)) {}
  CommHookInterface(const CommHookInterface&) = delete;
  CommHookInterface& operator=(const CommHookInterface&) = delete;
  virtual ~CommHookInterface();

  /// Starts the reduction of a bucket. An exception counts as a failed Future.
  [[nodiscard]] virtual Future<HookResult> run_hook(GradBucket& bucket) = 0;
  /// Returns the reduced buffer in the Future's value: flat, of the bucket's size and dtype. Called in finalize().
  virtual Tensor parse_hook_result(const HookResult& result) = 0;

  // Optional: for hooks that are lossy or keep state between steps. A wrapper forwards these calls to its inner hook.

  /// begin_step runs before the first bucket of a step, on the thread that starts that bucket. end_step runs in
  /// finalize() after all buckets have been written back. A failed step has no end_step.
  virtual void begin_step(const HookStep& step);
  virtual void end_step(const HookStep& step);

  /// Called after a local failure of the step. Aborts the hook's own groups, other than the reducer's, so that other
  /// ranks do not wait there. Runs on any thread, possibly while hooks are running.
  virtual void on_step_failed(const std::string& cause);

  /// Enables error feedback: the hook adds the compression error of this rank's gradients to those of the next step.
  /// Returns false if the hook does not implement it; with_error_feedback then requires reports_contribution.
  virtual bool enable_error_feedback() { return false; }
  /// Returns per-bucket statistics of the last step. Call between steps.
  virtual std::vector<HookStats> stats() const { return {}; }
  /// Write and read the hook's state between steps. Implementers override them; users call save_state and load_state.
  virtual void save(StateWriter& writer) const;
  virtual void load(StateReader& reader);

  std::string name() const;
  bool may_block() const noexcept { return traits_.may_block; }
  bool reports_contribution() const noexcept { return traits_.reports_contribution; }
  bool applies_scale() const noexcept { return traits_.applies_scale; }
  /// Returns the spec that make_hook created the hook from; empty for other hooks.
  const std::string& spec() const noexcept { return spec_; }
  void set_spec(std::string spec) { spec_ = std::move(spec); }

 private:
  const HookTraits traits_;
  std::string spec_;
};

using HookPtr = std::shared_ptr<CommHookInterface>;

/// Base class of C++ hooks with a state. Implementations override run_hook, which may be a coroutine that ends in
/// `co_return tensor`.
template <class State>
class CppCommHookInterface : public CommHookInterface {
 public:
  explicit CppCommHookInterface(State state, HookTraits traits = {})
      : CommHookInterface(std::move(traits)), state_(std::move(state)) {}

  Tensor parse_hook_result(const HookResult& result) override { return tensor_of(result); }

 protected:
  State state_;
};

/// Runs a hook outside a reducer or inside a wrapper, and returns the reduced buffer, flat and contiguous. Fails with
/// InvalidArgument unless the result has the bucket's size and dtype.
[[nodiscard]] HOOKLINE_EXPORT Future<Tensor> run_and_parse(HookPtr hook, GradBucket& bucket);

}  // namespace hookline
