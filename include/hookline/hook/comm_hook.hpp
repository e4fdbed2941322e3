// The communication hook: decides what is sent of a bucket of gradients.
#pragma once

#include <any>
#include <memory>
#include <string>
#include <utility>

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
  virtual Future<HookResult> run_hook(GradBucket& bucket) = 0;
  /// The reduced buffer in what the Future carried: flat, of the bucket's size and dtype. Called in finalize().
  virtual Tensor parse_hook_result(const HookResult& result) = 0;

  std::string name() const;
  bool may_block() const noexcept { return traits_.may_block; }

 private:
  const HookTraits traits_;
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

/// Runs a hook outside a reducer, as a hook around another does: the reduced buffer as a Tensor.
HOOKLINE_EXPORT Future<Tensor> run_and_parse(HookPtr hook, GradBucket& bucket);

}  // namespace hookline
