// Steps the parameters of a bucket as soon as it is reduced, while later buckets are still communicating.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include <hookline/core/export.hpp>
#include <hookline/core/future.hpp>
#include <hookline/hook/comm_hook.hpp>
#include <hookline/optimizer/optimizer.hpp>

namespace hookline {

struct OverlapOptions {
  /// Scales the gradients such that the norm of all of them together is at most this, as clip_grad_norm_ does. No
  /// parameter is stepped then before the whole gradient is there.
  std::optional<double> clip_norm = std::nullopt;
};

/// Runs `inner`, then steps the bucket's parameters by the result, on a thread of the hook's own: a gradient is marked
/// when the backward pass needs its parameter no more. When finalize() returns, all parameters are stepped; the
/// gradients hold the means, not clipped. Parameters that no rank has a gradient for are left alone; with
/// find_unused_parameters nobody knows them before the end, so the steps wait for it. PyTorch's DistributedDataParallel
/// does not tell its hooks: there they are stepped by zeros. Under no_sync nothing is stepped. Ranks that have joined
/// step like the others.
///
/// What the optimizer remembers goes by the parameters' names: it may be wrapped around another hook between two steps.
/// Saved states hold it too. Where finalize() throws, some parameters may be stepped and others not. Sparse gradients
/// are Unsupported. InvalidArgument for a norm that is no number larger than 0.
HOOKLINE_EXPORT HookPtr overlap(HookPtr inner, OptimizerPtr optimizer, const OverlapOptions& options = {});

/// Steps the parameters of a bucket, whose buffer holds the reduced gradients; parameters that nobody used are not in
/// it. Called for one bucket after another, in any order, in the thread that completes the inner hook, or in that of
/// finalize(). It may change the gradients.
using BucketStep = std::function<Future<void>(GradBucket bucket)>;

/// The same with steps of any kind. Where clip_norm clips, they get a scaled copy of the gradients.
HOOKLINE_EXPORT HookPtr overlap(HookPtr inner, BucketStep step, const std::string& name,
                                const OverlapOptions& options = {});

}  // namespace hookline
