// OverlapHook: updates parameters after each bucket, or at the end of the step if the whole gradient is needed.
#include <hookline/optimizer/overlap.hpp>

#include <algorithm>
#include <cmath>
#include <map>
#include <mutex>
#include <set>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/core/executor.hpp>

#include "hook/hook_wrapper.hpp"
#include "kernel/squared_norm.hpp"

namespace hookline {
namespace {

/// The parameters of buckets up to this number of elements are updated inline: a thread switch would cost more.
constexpr std::int64_t kMaxInlineStepElements = 1 << 14;

/// Returns the bucket without its unused parameters; nullopt if none is left.
std::optional<GradBucket> without_unused(const GradBucket& bucket, const std::set<std::string>& unused) {
  const BucketLayout& all = *bucket.layout();
  if (unused.empty() || std::none_of(all.names.begin(), all.names.end(), [&](auto& n) { return unused.contains(n); })) {
    return bucket;
  }
  BucketLayout kept;
  std::size_t end = 0;
  for (std::size_t i = 0; i < all.names.size(); ++i) {
    if (unused.contains(all.names[i])) continue;
    kept.offsets.push_back(all.offsets[i]);
    kept.lengths.push_back(all.lengths[i]);
    kept.sizes.push_back(all.sizes[i]);
    kept.parameters.push_back(all.parameters[i]);
    kept.names.push_back(all.names[i]);
    end = std::max(end, all.offsets[i] + all.lengths[i]);
  }
  if (kept.names.empty()) return std::nullopt;
  return GradBucket(bucket.index(), bucket.bucket_count(), bucket.buffer().slice(0, 0, static_cast<std::int64_t>(end)),
                    std::make_shared<const BucketLayout>(std::move(kept)));
}

class OverlapHook final : public hook::HookWrapper {
 public:
  OverlapHook(HookPtr inner, BucketStep step, OptimizerPtr optimizer, const std::string& name, OverlapOptions options)
      : HookWrapper(std::move(inner), fmt::format("overlap({})", name), true),
        step_(std::move(step)),
        optimizer_(std::move(optimizer)),
        options_(options) {}

  void begin_step(const HookStep& step) override {
    HookWrapper::begin_step(step);
    const std::lock_guard lock(mutex_);
    deferred_buckets_.clear();
    squared_norms_.clear();
    in_step_ = true;
    unused_known_ = step.unused_known;
    scale_ = inner()->applies_scale() ? 1 : step.scale;
    unused_ = {step.unused.begin(), step.unused.end()};
  }

  void end_step(const HookStep& step) override {
    HookWrapper::end_step(step);
    std::map<std::size_t, GradBucket> deferred_buckets;
    double squares = 0;
    {
      const std::lock_guard lock(mutex_);
      deferred_buckets.swap(deferred_buckets_);
      in_step_ = false;
      for (const auto& [index, sum] : squared_norms_) squares += sum;
    }
    const std::set<std::string> unused(step.unused.begin(), step.unused.end());
    const double clip_scale = options_.clip_norm ? *options_.clip_norm / (std::sqrt(squares) + 1e-6) : 1;
    const double scale = clip_scale > 1 ? 1 : clip_scale;  // a NaN norm makes all gradients NaN
    for (const auto& [index, bucket] : deferred_buckets) {
      const std::optional<GradBucket> used = without_unused(bucket, unused);
      if (!used) continue;
      if (optimizer_) step_with_optimizer(*used, scale);
      else step_with_callback(*used, scale);
    }
  }

  void save(StateWriter& writer) const override {
    HookWrapper::save(writer);
    if (optimizer_) optimizer_->save(writer);
  }
  void load(StateReader& reader) override {
    HookWrapper::load(reader);
    if (optimizer_) optimizer_->load(reader);
  }

 private:
  Future<Tensor> run(GradBucket& bucket) override {
    check(bucket);
    Tensor result = co_await run_and_parse(inner(), bucket);
    if (scale_ != 1) {
      if (result.bytes() != bucket.buffer().bytes()) result = result.clone();  // the inner hook may own it
      result *= scale_;
    }
    GradBucket reduced = bucket;
    reduced.set_buffer(result);
    const std::optional<GradBucket> ready = defer_or_take(reduced);
    if (ready && optimizer_ && ready->buffer().numel() > kMaxInlineStepElements) {
      const Future<void> stepped = step_on_worker(*ready);
      co_await stepped;
    } else if (ready && optimizer_) {
      step_with_optimizer(*ready, 1);
    } else if (ready) {
      const Future<void> stepped = step_(*ready);
      co_await stepped;
    }
    co_return result;
  }

  void check(const GradBucket& bucket) const {
    if (bucket.sparse_grad_indices()) {
      throw Unsupported(
          fmt::format("{}: sparse gradients are not supported. Update these parameters after finalize(), with "
                      "sparse_gradient().",
                      name()));
    }
    if (bucket.parameters().size() != bucket.sizes().size() || bucket.names().size() != bucket.sizes().size()) {
      throw InvalidArgument(fmt::format("{}: the bucket has no parameters or no names", name()));
    }
  }

  // Returns the bucket if its parameters can be updated now; otherwise records its squared norm and defers it to
  // end_step().
  std::optional<GradBucket> defer_or_take(const GradBucket& bucket) {
    double squares = 0;
    if (options_.clip_norm) {
      squares = kernel::sum_of_squares(bucket.buffer().dtype(), bucket.buffer().bytes(),
                                       static_cast<std::size_t>(bucket.buffer().numel()));
    }
    const std::lock_guard lock(mutex_);
    if (unused_known_ && !options_.clip_norm) return without_unused(bucket, unused_);
    if (!in_step_) {
      throw InvalidArgument(
          fmt::format("{}: clip_norm requires a reducer that calls end_step(), such as Reducer", name()));
    }
    squared_norms_[bucket.index()] = squares;
    deferred_buckets_.insert_or_assign(bucket.index(), bucket);
    return std::nullopt;
  }

  void step_with_optimizer(const GradBucket& bucket, double scale) const {
    const std::vector<Tensor> gradients = bucket.gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      optimizer_->step(bucket.names()[i], bucket.parameters()[i], gradients[i], scale);
    }
  }

  // Scales a copy, so that the gradients stay the means.
  void step_with_callback(GradBucket bucket, double scale) const {
    if (scale != 1) {
      bucket.set_buffer(bucket.buffer().clone());
      bucket.buffer() *= scale;
    }
    step_(std::move(bucket)).wait();
  }

  // Runs on the worker thread, so that collectives of later buckets are not delayed.
  Future<void> step_on_worker(const GradBucket& bucket) {
    Promise<void> promise;
    Future<void> future = promise.get_future();
    auto task = [this, bucket, promise = std::move(promise)]() mutable {
      promise.set_from([&] { step_with_optimizer(bucket, 1); });
    };
    worker().post(std::move(task));
    return future;
  }

  ThreadExecutor& worker() {
    const std::lock_guard lock(mutex_);
    if (!worker_) worker_ = std::make_unique<ThreadExecutor>("hookline-optim");
    return *worker_;
  }

  const BucketStep step_;
  const OptimizerPtr optimizer_;
  const OverlapOptions options_;
  std::mutex mutex_;
  bool in_step_ = false;  ///< between begin_step and end_step
  bool unused_known_ = true;
  double scale_ = 1;  ///< scale of the results; changes in begin_step() only
  std::set<std::string> unused_;
  std::map<std::size_t, GradBucket> deferred_buckets_;
  std::map<std::size_t, double> squared_norms_;
  std::unique_ptr<ThreadExecutor> worker_;
};

void check(const OverlapOptions& options) {
  if (options.clip_norm && (!(*options.clip_norm > 0) || std::isinf(*options.clip_norm))) {
    throw InvalidArgument(fmt::format("overlap: clip_norm must be positive and finite, got {}", *options.clip_norm));
  }
}

}  // namespace

HookPtr overlap(HookPtr inner, OptimizerPtr optimizer, const OverlapOptions& options) {
  check(options);
  if (!optimizer) throw InvalidArgument("overlap: optimizer must not be null");
  const std::string name = optimizer->name();
  return std::make_shared<OverlapHook>(std::move(inner), nullptr, std::move(optimizer), name, options);
}

HookPtr overlap(HookPtr inner, BucketStep step, const std::string& name, const OverlapOptions& options) {
  check(options);
  if (!step) throw InvalidArgument("overlap: step must not be empty");
  return std::make_shared<OverlapHook>(std::move(inner), std::move(step), nullptr, name, options);
}

}  // namespace hookline
