// Tests error feedback for custom hooks: reported contributions and invalid hooks.
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/function_hook.hpp>
#include <hookline/hook/registry.hpp>
#include <hookline/hook/wrappers.hpp>

#include "group/float32.hpp"
#include "hook/buckets.hpp"

namespace hookline::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

/// Quantizes to 8 bits, scaled by the largest magnitude, and decodes again.
Tensor through_8_bits(const Tensor& values) {
  const Tensor decoded = group::as_float32(values).clone();
  float* const data = decoded.data<float>();
  float largest = 0;
  for (std::int64_t i = 0; i < decoded.numel(); ++i) largest = std::max(largest, std::abs(data[i]));
  const float scale = largest > 0 ? largest / 127 : 1;
  for (std::int64_t i = 0; i < decoded.numel(); ++i) data[i] = std::round(data[i] / scale) * scale;
  Tensor result = Tensor::empty(values.shape(), values.dtype());
  group::from_float32(decoded, result);
  return result;
}

/// Averages quantized gradients. Reports its contribution and then reduces it in place.
Future<Tensor> eight_bits(ProcessGroup& group, GradBucket& bucket) {
  const Tensor decoded = through_8_bits(bucket.buffer());
  bucket.set_contribution(decoded);
  const AllreduceOptions options{.op = ReduceOp::avg};
  co_await group.allreduce(decoded, options);
  co_return decoded;
}

HookPtr eight_bit_hook(ProcessGroup& group) {
  return make_hook(eight_bits, group.shared_from_this(), {.name = "eight_bits", .reports_contribution = true});
}

constexpr std::int64_t kCount = 64;

/// A gradient with a constant part that differs between ranks.
double gradient(int rank, int step, std::int64_t i) {
  return std::sin(static_cast<double>(i + 1) * (rank + 1)) + 0.1 * std::cos(0.7 * step + static_cast<double>(i));
}

double exact(int ranks, int step, std::int64_t i) {
  double sum = 0;
  for (int r = 0; r < ranks; ++r) sum += gradient(r, step, i);
  return sum / ranks;
}

struct Drift {
  double early = 0, late = 0;  ///< RMS of result minus exact mean over the first and the last 50 steps
  double sum = 0;              ///< largest difference of the sums over all steps
};

Drift drift_of(const HookPtr& hook, ProcessGroup& group, int steps) {
  const Layout one = layout({Dims{kCount}}, {"w"});
  std::vector<double> sums(kCount, 0);
  Drift drift;
  for (int step = 0; step < steps; ++step) {
    GradBucket bucket = bucket_with(one, [&](std::int64_t i) { return gradient(group.rank(), step, i); });
    const Tensor result = run_and_parse(hook, bucket).wait(std::chrono::seconds(30));
    double squares = 0;
    for (std::int64_t i = 0; i < kCount; ++i) {
      const double off = result.data<const float>()[i] - exact(group.size(), step, i);
      squares += off * off / kCount / 50;
      sums[static_cast<std::size_t>(i)] += off;
    }
    if (step < 50) drift.early += squares;
    if (step >= steps - 50) drift.late += squares;
  }
  for (const double sum : sums) drift.sum = std::max(drift.sum, std::abs(sum));
  return {std::sqrt(drift.early), std::sqrt(drift.late), drift.sum};
}

TEST(ErrorFeedback, CustomHookErrorStaysBounded) {
  threads_fixture().spawn(3, [](ProcessGroup& group) {
    for (const char* wrappers : {"error_feedback", "error_feedback | compare", "compare | error_feedback",
                                 "where(name=w) | error_feedback", "where(name=none) | error_feedback"}) {
      const Drift drift = drift_of(wrap(eight_bit_hook(group), wrappers, group.shared_from_this()), group, 1000);
      const std::string found = std::string(wrappers) + ": " + std::to_string(drift.early) + " early, " +
                                std::to_string(drift.late) + " late, sums off by " + std::to_string(drift.sum);
      require(drift.late < 1.5 * drift.early + 1e-6, found);
      require(drift.sum < 0.05, found);
    }
    // As with built-in hooks, the error of the cast itself is not fed back.
    const Drift cast =
        drift_of(wrap(eight_bit_hook(group), "fp16 | error_feedback", group.shared_from_this()), group, 300);
    require(cast.late < 1.5 * cast.early, "fp16 | error_feedback: " + std::to_string(cast.late));
  });
}

std::string message(const std::function<void()>& f) {
  try {
    f();
    return "nothing";
  } catch (const InvalidArgument& e) {
    return e.what();
  }
}

TEST(ErrorFeedback, RejectsHooksThatDoNotReportTheirContribution) {
  const auto group = single_rank_group();
  const auto silent = [](GradBucket& bucket) { return Future<Tensor>::ready(bucket.buffer()); };
  const auto hook = [&] { return make_hook(silent, {.name = "silent"}); };
  const auto names_it = AllOf(HasSubstr("the hook silent does not report"), HasSubstr("set_contribution"));
  EXPECT_THAT(message([&] { (void)with_error_feedback(hook()); }), names_it);
  for (const char* inside : {"log", "compare", "fp16", "where(name=w)"}) {
    EXPECT_THAT(message([&] { (void)with_error_feedback(wrap(hook(), inside, group)); }), names_it) << inside;
  }
  EXPECT_THAT(message([&] { (void)with_error_feedback(per_parameter(make_hook("int8", group), {}, hook())); }),
              names_it);
  for (const char* text :
       {"allreduce", "noop", "fp16", "int8", "int4", "powersgd", "batched_powersgd", "post_local_sgd",
        "allreduce | fp16", "int8 | where(dims=2, fallback=fp16)", "int8 | compare | log"}) {
    EXPECT_NO_THROW((void)make_hook(std::string(text) + " | error_feedback", group)) << text;
  }
}

TEST(ErrorFeedback, NamesHookThatDidNotReportItsContribution) {
  const auto silent = [](GradBucket& bucket) { return Future<Tensor>::ready(bucket.buffer()); };
  const HookPtr hook = with_error_feedback(make_hook(silent, {.name = "silent", .reports_contribution = true}));
  const auto bucket = bucket_with(layout({Dims{4}}, {"w"}), [](auto) { return 1; });
  EXPECT_THAT(message([&] { run(hook, bucket); }), AllOf(HasSubstr("the hook silent"), HasSubstr("bucket 0")));
}

TEST(ErrorFeedback, RejectsContributionsThatDoNotFit) {
  GradBucket bucket = bucket_with(layout({Dims{4}}, {"w"}), [](auto) { return 1; });
  EXPECT_FALSE(bucket.wants_contribution());
  EXPECT_THAT(message([&] { bucket.set_contribution(Tensor::zeros({3})); }), HasSubstr("of 4 elements"));
  EXPECT_THAT(message([&] { bucket.set_contribution(Tensor::zeros({4}, DType::i32)); }), HasSubstr("floating-point"));
  bucket.set_contribution(Tensor::zeros({4}));
  EXPECT_FALSE(bucket.contribution());
}

}  // namespace
}  // namespace hookline::testing
