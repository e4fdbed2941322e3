// The communication hook: decides what is sent of a bucket of gradients.
#pragma once

#include <any>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <hookline/bucket/grad_bucket.hpp>
#include <hookline/core/export.hpp>
#include <hookline/core/future.hpp>
#include <hookline/core/tensor.hpp>

namespace hookline {

/// What a hook's Future carries. Of a C++ hook it is a Tensor, or a vector of one; other hooks know what theirs is.
using HookResult = std::any;

/// What the reducer wants to know of a hook beforehand.
struct HookTraits {
  std::string name = {};   ///< for error texts and statistics; the class's name where not given
  bool may_block = false;  ///< waits inside: such hooks share one lane and run one after another
  /// Every run calls GradBucket::set_contribution: what error_feedback needs of a hook.
  bool reports_contribution = false;
  bool scales = false;  ///< multiplies its results by HookStep::scale itself, as it steps parameters by them
};

class StateWriter;
class StateReader;

/// What the reducer tells hooks of a whole step.
struct HookStep {
  /// Whether `unused` holds already. Where it does not, end_step brings it.
  bool unused_known = true;
  std::vector<std::string> unused = {};  ///< parameters that no rank has a gradient for
  /// The factor of all results, such as the number of ranks where the mean of a hook is to become a sum. The reducer
  /// multiplies by it, unless HookTraits::scales.
  double scale = 1;
};

/// What a hook did to a bucket in the last step, where it knows.
struct HookCost {
  std::size_t bucket = 0;
  std::uint64_t values = 0;
  std::uint64_t sent_bytes = 0;  ///< by this rank
  double ratio = 1;              ///< what an allreduce of the values would have sent, over sent_bytes
  double encode_time = 0;        ///< seconds
  double decode_time = 0;
  double kept_error_norm = 0;  ///< of what is fed back into the next step
  /// Of the result against the exact mean, where a hook around it compares them.
  std::optional<double> relative_error = std::nullopt;
};

/// The seam: a bucket in, a Future of the reduced buffer out. The reducer calls run_hook once a bucket and step, in
/// bucket order, and keeps group, bucket and hook alive until the Future is done, so a coroutine may take them by
/// reference. Operations that the hook starts land in the lane of its bucket, also behind a co_await.
class HOOKLINE_EXPORT CommHookInterface {
 public:
  explicit CommHookInterface(HookTraits traits = {}) : traits_(std::move(traits)) {}
  CommHookInterface(const CommHookInterface&) = delete;
  CommHookInterface& operator=(const CommHookInterface&) = delete;
  virtual ~CommHookInterface();

  /// Starts the reduction of a bucket. What it throws counts as a failed Future.
  [[nodiscard]] virtual Future<HookResult> run_hook(GradBucket& bucket) = 0;
  /// The reduced buffer in what the Future carried: flat, of the bucket's size and dtype. Called in finalize().
  virtual Tensor parse_hook_result(const HookResult& result) = 0;

  // The rest is for hooks that lose something, keep something between steps, or do more than reduce. A hook around
  // another asks it in turn.

  /// Before the first bucket of a step, and when all of them are reduced and handed back: in the thread that starts
  /// that bucket, and in that of finalize(). A step that fails has no end.
  virtual void begin_step(const HookStep& step);
  virtual void end_step(const HookStep& step);

  /// A hook of the step has failed on this rank, for a reason that the other ranks do not know: aborts the groups,
  /// other than the reducer's, in which they may wait for this one. On any thread, while hooks may be running.
  virtual void give_up(const std::string& cause);

  /// Has the hook add what it loses of this rank's gradients to those of the next step, from now on. False where the
  /// hook cannot do so itself; error_feedback then asks that it reports its contribution.
  virtual bool keep_error() { return false; }
  /// Of the buckets of the last step; called between steps, as the two below.
  virtual std::vector<HookCost> costs() const { return {}; }
  /// What it keeps; see save_state. load reads what save has written.
  virtual void save(StateWriter& to) const;
  virtual void load(StateReader& from);

  std::string name() const;
  bool may_block() const noexcept { return traits_.may_block; }
  bool reports_contribution() const noexcept { return traits_.reports_contribution; }
  bool scales() const noexcept { return traits_.scales; }
  /// What make_hook made it of; empty for others.
  const std::string& text() const noexcept { return text_; }
  void set_text(std::string text) { text_ = std::move(text); }

 private:
  const HookTraits traits_;
  std::string text_;
};

using HookPtr = std::shared_ptr<CommHookInterface>;

/// The Tensor in the result of a C++ hook. Throws InvalidArgument for anything but a Tensor or a vector of one.
HOOKLINE_EXPORT Tensor tensor_of(const HookResult& result);

/// A C++ hook with a state; it needs run_hook alone, and may be a coroutine that ends in `co_return tensor`.
template <class State>
class CppCommHookInterface : public CommHookInterface {
 public:
  explicit CppCommHookInterface(State state, HookTraits traits = {})
      : CommHookInterface(std::move(traits)), state_(std::move(state)) {}

  Tensor parse_hook_result(const HookResult& result) override { return tensor_of(result); }

 protected:
  State state_;
};

/// Runs a hook outside a reducer, as a hook around another does: the reduced buffer, flat and contiguous.
/// InvalidArgument where the hook gave anything but a tensor of the bucket's size and dtype.
[[nodiscard]] HOOKLINE_EXPORT Future<Tensor> run_and_parse(HookPtr hook, GradBucket& bucket);

}  // namespace hookline
