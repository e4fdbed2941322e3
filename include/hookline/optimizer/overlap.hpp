// Overlapped optimizer: updates the parameters of a bucket while later buckets are still being reduced.
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
  /// Clips the global gradient norm, like torch.nn.utils.clip_grad_norm_. All updates are then deferred until the whole
  /// gradient is reduced.
  std::optional<double> clip_norm = std::nullopt;
};

/// Returns a hook that runs `inner` and then updates the bucket's parameters with the result, on a worker thread. A
/// gradient must be marked ready only when the backward pass no longer needs its parameter. When finalize() returns,
/// all parameters are updated, and the gradients hold the unclipped means. If finalize() throws, some parameters may be
/// updated and others not.
///
/// Globally unused parameters are not updated; with find_unused_parameters all updates are deferred to the end of the
/// step, when the unused ones are known. PyTorch's DistributedDataParallel does not report them to hooks, so they are
/// updated with zero gradients there. Parameters are not updated under no_sync. Ranks that have joined update their
/// parameters like the others.
///
/// Optimizer state is keyed by parameter name, so the same optimizer may be used with another inner hook between steps.
/// Saved hook states include it. Throws InvalidArgument unless clip_norm is positive and finite. The hook throws
/// Unsupported for sparse gradients.
HOOKLINE_EXPORT HookPtr overlap(HookPtr inner, OptimizerPtr optimizer, const OverlapOptions& options = {});

/// A callback that updates the parameters of a bucket. The buffer holds the reduced gradients; the bucket does not
/// contain globally unused parameters. Called for one bucket at a time, in any order, on the thread that completes the
/// inner hook or calls finalize(). It may modify the gradients.
using BucketStep = std::function<Future<void>(GradBucket bucket)>;

/// Like overlap() above, with a callback instead of an optimizer. If clip_norm scales the gradients, the callback
/// receives a scaled copy.
HOOKLINE_EXPORT HookPtr overlap(HookPtr inner, BucketStep step, const std::string& name,
                                const OverlapOptions& options = {});

}  // namespace hookline
