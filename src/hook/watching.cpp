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
#include "hook/around_hook.hpp"

namespace hookline {
namespace {

double norm(const Tensor& tensor) { return std::sqrt(squared_norm(tensor).item<double>()); }

class ComparingHook final : public hook::AroundHook {
 public:
  ComparingHook(HookPtr inner, std::shared_ptr<ProcessGroup> group)
      : AroundHook(std::move(inner), "compare"), group_(std::move(group)) {}

  std::vector<HookCost> costs() const override {
    std::vector<HookCost> all = AroundHook::costs();
    const std::lock_guard lock(mutex_);
    if (all.empty()) {
      for (const auto& [bucket, error] : errors_) all.push_back({.bucket = bucket});
    }
    for (HookCost& cost : all) {
      const auto found = errors_.find(cost.bucket);
      if (found != errors_.end()) cost.relative_error = found->second;
    }
    return all;
  }

 private:
  Future<Tensor> run(GradBucket& bucket) override {
    const Tensor exact = bucket.buffer().clone();
    const WorkPtr work = start_exact(exact);
    co_await work;
    const Tensor result = co_await run_and_parse(inner(), bucket);
    const double size = norm(exact);
    const double off = difference(exact, result);
    note(bucket.index(), size > 0 ? off / size : off);
    co_return result;
  }

  // Excluded from sent_bytes, which counts the inner hook's traffic only.
  WorkPtr start_exact(const Tensor& exact) {
    CallContext uncounted = current_context();
    uncounted.sent = nullptr;
    const ContextScope scope(std::move(uncounted));
    return group_->allreduce(exact, {.op = ReduceOp::avg});
  }

  // Not inlined into the coroutine: continuations run inside co_return, where the lock would still be held.
  void note(std::size_t bucket, double error) {
    const std::lock_guard lock(mutex_);
    errors_[bucket] = error;
  }

  static double difference(const Tensor& exact, const Tensor& result) {
    const Tensor a = group::as_float32(exact), b = group::as_float32(result);
    double sum = 0;
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const double off = static_cast<double>(a.data<const float>()[i]) - static_cast<double>(b.data<const float>()[i]);
      sum += off * off;
    }
    return std::sqrt(sum);
  }

  const std::shared_ptr<ProcessGroup> group_;
  mutable std::mutex mutex_;
  std::map<std::size_t, double> errors_;
};

Future<Tensor> log_around(HookPtr hook, GradBucket& bucket, std::function<void(const std::string&)> line) {
  const auto begin = Clock::now();
  const double before = norm(bucket.buffer());
  const Tensor result = co_await run_and_parse(hook, bucket);
  const double milliseconds = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  line(fmt::format("hookline: bucket {} of {}, {}: norm {:.6g} before, {:.6g} after {}, in {:.3f} ms", bucket.index(),
                   bucket.bucket_count(), to_string(bucket.buffer()), before, norm(result), hook->name(),
                   milliseconds));
  co_return result;
}

}  // namespace

HookPtr logged(HookPtr inner, std::function<void(const std::string&)> line) {
  if (!line) line = [](const std::string& text) { fmt::print(stderr, "{}\n", text); };
  return wrap(
      std::move(inner),
      [line = std::move(line)](HookPtr hook, GradBucket& bucket) { return log_around(std::move(hook), bucket, line); },
      "log");
}

HookPtr compared_with_exact(HookPtr inner, std::shared_ptr<ProcessGroup> group) {
  if (!group) throw InvalidArgument("with_error_measurement: process group must not be null");
  return std::make_shared<ComparingHook>(std::move(inner), std::move(group));
}

}  // namespace hookline
