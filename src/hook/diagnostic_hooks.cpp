// Diagnostic hook wrappers: logging, and error measurement against the exact mean.
#include <cmath>
#include <cstdio>
#include <map>
#include <mutex>

#include <fmt/format.h>

#include <hookline/core/call_context.hpp>
#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/wrappers.hpp>
#include <hookline/kernel/norm.hpp>

#include "group/float32.hpp"
#include "hook/hook_wrapper.hpp"

namespace hookline {
namespace {

double norm(const Tensor& tensor) { return std::sqrt(squared_norm(tensor).item<double>()); }

class ErrorMeasurementHook final : public hook::HookWrapper {
 public:
  ErrorMeasurementHook(HookPtr inner, std::shared_ptr<ProcessGroup> group)
      : HookWrapper(std::move(inner), "compare"), group_(std::move(group)) {}

  std::vector<HookStats> stats() const override {
    std::vector<HookStats> all = HookWrapper::stats();
    const std::lock_guard lock(mutex_);
    if (all.empty()) {
      for (const auto& [bucket, error] : errors_) all.push_back({.bucket = bucket});
    }
    for (HookStats& stats : all) {
      const auto found = errors_.find(stats.bucket);
      if (found != errors_.end()) stats.relative_error = found->second;
    }
    return all;
  }

 private:
  Future<Tensor> run(GradBucket& bucket) override {
    const Tensor exact = bucket.buffer().clone();
    const WorkPtr work = start_exact_allreduce(exact);
    co_await work;
    const Tensor result = co_await run_and_parse(inner(), bucket);
    const double exact_norm = norm(exact);
    const double error = l2_distance(exact, result);
    record_error(bucket.index(), exact_norm > 0 ? error / exact_norm : error);
    co_return result;
  }

  // Excluded from bytes_sent, which counts the inner hook's traffic only.
  WorkPtr start_exact_allreduce(const Tensor& exact) {
    CallContext uncounted = current_context();
    uncounted.bytes_sent = nullptr;
    const ContextScope scope(std::move(uncounted));
    return group_->allreduce(exact, {.op = ReduceOp::avg});
  }

  // Not inlined into the coroutine: continuations run inside co_return, where the lock would still be held.
  void record_error(std::size_t bucket, double error) {
    const std::lock_guard lock(mutex_);
    errors_[bucket] = error;
  }

  static double l2_distance(const Tensor& exact, const Tensor& result) {
    const Tensor a = group::as_float32(exact), b = group::as_float32(result);
    double sum = 0;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const double delta =
          static_cast<double>(a.data<const float>()[i]) - static_cast<double>(b.data<const float>()[i]);
      sum += delta * delta;
    }
    return std::sqrt(sum);
  }

  const std::shared_ptr<ProcessGroup> group_;
  mutable std::mutex mutex_;
  std::map<std::size_t, double> errors_;
};

Future<Tensor> run_and_log(HookPtr hook, GradBucket& bucket, std::function<void(const std::string&)> write_line) {
  const auto begin = Clock::now();
  const double norm_before = norm(bucket.buffer());
  const Tensor result = co_await run_and_parse(hook, bucket);
  const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  write_line(fmt::format("hookline: bucket {} of {}, {}: norm {:.6g} before, {:.6g} after {}, in {:.3f} ms",
                         bucket.index(), bucket.bucket_count(), to_string(bucket.buffer()), norm_before, norm(result),
                         hook->name(), milliseconds));
  co_return result;
}

}  // namespace

HookPtr with_logging(HookPtr inner, std::function<void(const std::string&)> write_line) {
  if (!write_line) write_line = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  return wrap(
      std::move(inner),
      [write_line = std::move(write_line)](HookPtr hook, GradBucket& bucket) {
        return run_and_log(std::move(hook), bucket, write_line);
      },
      "log");
}

HookPtr with_error_measurement(HookPtr inner, std::shared_ptr<ProcessGroup> group) {
  if (!group) throw InvalidArgument("with_error_measurement: process group must not be null");
  return std::make_shared<ErrorMeasurementHook>(std::move(inner), std::move(group));
}

}  // namespace hookline
