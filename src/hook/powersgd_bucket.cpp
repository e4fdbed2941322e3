// PowerSGDBucket: the stages of a PowerSGD step on one bucket.
#include "hook/powersgd_bucket.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include <hookline/codec/make_codec.hpp>
#include <hookline/kernel/norm.hpp>

#include "core/stopwatch.hpp"
#include "hook/named_tensors.hpp"
#include "hook/powersgd_factors.hpp"

namespace hookline::hook {

PowerSGDBucket::PowerSGDBucket(const GradBucket& bucket, PowerSGDPlan plan, const PowerSGDOptions& options,
                               ProcessGroup& group)
    : layout_(bucket.layout()),
      plan_(std::move(plan)),
      options_(options),
      count_(static_cast<std::size_t>(bucket.buffer().numel())),
      ranks_(group.size()),
      q_start_(plan_.q_size),
      q_given_(plan_.matrices.size(), false) {
  if (options_.use_error_feedback && !plan_.matrices.empty()) kept_ = Tensor::zeros({bucket.buffer().numel()});
  first_ = group.empty({static_cast<std::int64_t>(plan_.rest_size + plan_.p_size)});
  rest_ = part(first_, 0, plan_.rest_size);
  p_ = part(first_, plan_.rest_size, plan_.p_size);
  q_ = group.empty({static_cast<std::int64_t>(plan_.q_size)});
}

void PowerSGDBucket::set_q(const PowerSGDMatrix& matrix, const Tensor& q) {
  part(q_, matrix.q, matrix.columns * matrix.rank).copy_from(q);
  q_given_[static_cast<std::size_t>(&matrix - plan_.matrices.data())] = true;
}

// Clears factors_valid_ until reconstruct(): if the step fails, the residual is all of M.
void PowerSGDBucket::project(float* values, std::uint64_t step) {
  encode_time_ = decode_time_ = 0;
  sent_ = 0;
  const core::Stopwatch watch(encode_time_);
  const bool whole = std::exchange(whole_, false);
  float* const rest = rest_.data<float>();
  std::size_t at = 0;
  for (const PowerSGDPiece& piece : plan_.rest) {
    std::copy_n(values + piece.offset, piece.count, rest + at);
    at += piece.count;
  }
  for (std::size_t i = 0; i < plan_.matrices.size(); ++i) {
    const PowerSGDMatrix& matrix = plan_.matrices[i];
    float* const p = p_.data<float>() + matrix.p;
    const float* const q_before = q_.data<const float>() + matrix.q;
    float* const q = q_start_.data() + matrix.q;
    const bool warm = options_.warm_start && (whole || q_given_[i]);
    begin_factor(warm ? q_before : nullptr, matrix.columns, matrix.rank, options_.orthogonalization_epsilon,
                 {options_.random_seed, step, matrix.name}, q);
    q_given_[i] = false;
    if (options_.use_error_feedback) {
      float* const m = kept_.data<float>() + matrix.offset;
      feed_back_times_q(matrix, values + matrix.offset, m, whole ? q_before : nullptr, q, p);
    } else {
      times_q(matrix, values + matrix.offset, q, p);
    }
  }
}

// P is a mean, so the epsilon, which applies to the sum, is divided by the number of ranks.
void PowerSGDBucket::turn(float* values) {
  const core::Stopwatch watch(encode_time_);
  const float* const rest = rest_.data<const float>();
  std::size_t at = 0;
  for (const PowerSGDPiece& piece : plan_.rest) {
    std::copy_n(rest + at, piece.count, values + piece.offset);
    at += piece.count;
  }
  const float* const from = options_.use_error_feedback ? kept_.data<const float>() : values;
  for (const PowerSGDMatrix& matrix : plan_.matrices) {
    float* const p = p_.data<float>() + matrix.p;
    finish_factor(p, matrix.rows, matrix.rank, options_.orthogonalization_epsilon / ranks_);
    transposed_times_p(matrix, from + matrix.offset, p, q_.data<float>() + matrix.q);
  }
}

void PowerSGDBucket::expand(float* values) {
  const core::Stopwatch watch(decode_time_);
  const auto stores =
      count_ * sizeof(float) >= kernel::kStreamFrom ? kernel::Stores::streaming : kernel::Stores::cached;
  for (const PowerSGDMatrix& matrix : plan_.matrices) {
    float* const p = p_.data<float>() + matrix.p;
    float* const q = q_.data<float>() + matrix.q;
    // If only Q has overflowed, zero columns of P must not hide it.
    if (spread_nan(q, matrix.columns * matrix.rank)) {
      std::fill_n(p, matrix.rows * matrix.rank, std::numeric_limits<float>::quiet_NaN());
    }
    product(matrix, p, q, values + matrix.offset, stores);
  }
  whole_ = true;
}

CompressedReduction& PowerSGDBucket::reduction(std::unique_ptr<CompressedReduction>& kept,
                                               const std::shared_ptr<ProcessGroup>& group) {
  if (!kept) {
    using Format = CodecOptions::Format;
    const Format format = options_.wire == DType::f16 ? Format::float16 : Format::bfloat16;
    kept = std::make_unique<CompressedReduction>(group, make_codec(CodecOptions{.format = format}));
  }
  return *kept;
}

Future<void> PowerSGDBucket::mean(Tensor tensor, std::shared_ptr<ProcessGroup> group) {
  const AllreduceOptions options{.op = ReduceOp::avg};
  sent_ += 2 * static_cast<std::uint64_t>(ranks_ - 1) * tensor.nbytes() / static_cast<std::uint64_t>(ranks_);
  const WorkPtr work = group->allreduce(tensor, options);
  co_await work;
}

Future<void> PowerSGDBucket::encoded_mean(CompressedReduction& reduction, Tensor tensor) {
  const AllreduceOptions options{.op = ReduceOp::avg};
  co_await reduction.allreduce(tensor, options);
  sent_ += reduction.stats().sent_bytes;
  encode_time_ += reduction.stats().encode_time;
  decode_time_ += reduction.stats().decode_time;
}

// Encoded factors and float32 gradients are two concurrent operations.
Future<void> PowerSGDBucket::reduce_first(const std::shared_ptr<ProcessGroup>& group) {
  if (options_.wire == DType::f32) return mean(first_, group);
  if (plan_.rest_size == 0) return encoded_mean(reduction(p_reduction_, group), p_);
  Future<void> rest = mean(rest_, group);
  const Future<void> factors = encoded_mean(reduction(p_reduction_, group), p_);
  return factors.then([rest](const Future<void>& done) {
    done.value();
    return rest;
  });
}

Future<void> PowerSGDBucket::reduce_second(const std::shared_ptr<ProcessGroup>& group) {
  if (options_.wire == DType::f32) return mean(q_, group);
  return encoded_mean(reduction(q_reduction_, group), q_);
}

Tensor PowerSGDBucket::errors() const {
  if (kept_.numel() == 0) return Tensor::zeros({static_cast<std::int64_t>(count_)});
  Tensor errors = kept_.clone();
  for (const PowerSGDMatrix& matrix : plan_.matrices) {
    float* const m = errors.data<float>() + matrix.offset;
    if (whole_) subtract_product(matrix, p_.data<const float>() + matrix.p, q_.data<const float>() + matrix.q, m);
    for (std::size_t i = 0; i < matrix.count && !whole_; ++i) m[i] = std::isfinite(m[i]) ? m[i] : 0;
  }
  return errors;
}

HookCost PowerSGDBucket::cost() const {
  const double plain = 2.0 * (ranks_ - 1) / ranks_ * 4.0 * static_cast<double>(count_);
  const std::uint64_t sent = plan_.matrices.empty() ? static_cast<std::uint64_t>(plain) : sent_;
  HookCost cost{.bucket = 0, .values = count_, .sent_bytes = sent};
  if (sent > 0) cost.ratio = plain / static_cast<double>(sent);
  cost.encode_time = encode_time_;
  cost.decode_time = decode_time_;
  if (kept_.numel() > 0) cost.kept_error_norm = std::sqrt(squared_norm(errors()).item<double>());
  return cost;
}

}  // namespace hookline::hook
