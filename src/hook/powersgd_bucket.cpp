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
      numel_(static_cast<std::size_t>(bucket.buffer().numel())),
      ranks_(group.size()),
      initial_q_(plan_.q_size),
      q_restored_(plan_.matrices.size(), false) {
  if (options_.use_error_feedback && !plan_.matrices.empty())
    corrected_gradients_ = Tensor::zeros({bucket.buffer().numel()});
  p_message_ = group.empty({static_cast<std::int64_t>(plan_.uncompressed_size + plan_.p_size)});
  uncompressed_ = flat_slice(p_message_, 0, plan_.uncompressed_size);
  p_ = flat_slice(p_message_, plan_.uncompressed_size, plan_.p_size);
  q_ = group.empty({static_cast<std::int64_t>(plan_.q_size)});
}

void PowerSGDBucket::set_q(const PowerSGDMatrix& matrix, const Tensor& q) {
  flat_slice(q_, matrix.q_offset, matrix.columns * matrix.rank).copy_from(q);
  q_restored_[static_cast<std::size_t>(&matrix - plan_.matrices.data())] = true;
}

// Clears factors_valid_ until reconstruct(): if the step fails, the residual is all of M.
void PowerSGDBucket::compute_p(float* values, std::uint64_t step) {
  encode_time_ = decode_time_ = 0;
  bytes_sent_ = 0;
  const core::Stopwatch watch(encode_time_);
  const bool had_factors = std::exchange(factors_valid_, false);
  float* const uncompressed = uncompressed_.data<float>();
  std::size_t at = 0;
  for (const UncompressedSlice& piece : plan_.uncompressed) {
    std::copy_n(values + piece.offset, piece.count, uncompressed + at);
    at += piece.count;
  }
  for (std::size_t i = 0; i < plan_.matrices.size(); ++i) {
    const PowerSGDMatrix& matrix = plan_.matrices[i];
    float* const p = p_.data<float>() + matrix.p_offset;
    const float* const q_before = q_.data<const float>() + matrix.q_offset;
    float* const q = initial_q_.data() + matrix.q_offset;
    const bool warm = options_.warm_start && (had_factors || q_restored_[i]);
    init_factor(warm ? q_before : nullptr, matrix.columns, matrix.rank, options_.orthogonalization_epsilon,
                {options_.random_seed, step, matrix.name}, q);
    q_restored_[i] = false;
    if (options_.use_error_feedback) {
      float* const m = corrected_gradients_.data<float>() + matrix.offset;
      feed_back_times_q(matrix, values + matrix.offset, m, had_factors ? q_before : nullptr, q, p);
    } else {
      times_q(matrix, values + matrix.offset, q, p);
    }
  }
}

// P is a mean, so the epsilon, which applies to the sum, is divided by the number of ranks.
void PowerSGDBucket::compute_q(float* values) {
  const core::Stopwatch watch(encode_time_);
  const float* const uncompressed = uncompressed_.data<const float>();
  std::size_t at = 0;
  for (const UncompressedSlice& piece : plan_.uncompressed) {
    std::copy_n(uncompressed + at, piece.count, values + piece.offset);
    at += piece.count;
  }
  const float* const source = options_.use_error_feedback ? corrected_gradients_.data<const float>() : values;
  for (const PowerSGDMatrix& matrix : plan_.matrices) {
    float* const p = p_.data<float>() + matrix.p_offset;
    orthonormalize_factor(p, matrix.rows, matrix.rank, options_.orthogonalization_epsilon / ranks_);
    transposed_times_p(matrix, source + matrix.offset, p, q_.data<float>() + matrix.q_offset);
  }
}

void PowerSGDBucket::reconstruct(float* values) {
  const core::Stopwatch watch(decode_time_);
  const auto stores = numel_ * sizeof(float) >= kernel::kStreamThresholdBytes ? kernel::StoreMode::streaming
                                                                              : kernel::StoreMode::cached;
  for (const PowerSGDMatrix& matrix : plan_.matrices) {
    float* const p = p_.data<float>() + matrix.p_offset;
    float* const q = q_.data<float>() + matrix.q_offset;
    // If only Q has overflowed, zero columns of P must not hide it.
    if (spread_nan(q, matrix.columns * matrix.rank)) {
      std::fill_n(p, matrix.rows * matrix.rank, std::numeric_limits<float>::quiet_NaN());
    }
    product(matrix, p, q, values + matrix.offset, stores);
  }
  factors_valid_ = true;
}

CompressedReduction& PowerSGDBucket::reduction(std::unique_ptr<CompressedReduction>& slot,
                                               const std::shared_ptr<ProcessGroup>& group) {
  if (!slot) {
    using Format = CodecOptions::Format;
    const Format format = options_.wire == DType::f16 ? Format::float16 : Format::bfloat16;
    slot = std::make_unique<CompressedReduction>(group, make_codec(CodecOptions{.format = format}));
  }
  return *slot;
}

Future<void> PowerSGDBucket::allreduce_mean(Tensor tensor, std::shared_ptr<ProcessGroup> group) {
  const AllreduceOptions options{.op = ReduceOp::avg};
  bytes_sent_ += 2 * static_cast<std::uint64_t>(ranks_ - 1) * tensor.nbytes() / static_cast<std::uint64_t>(ranks_);
  const WorkPtr work = group->allreduce(tensor, options);
  co_await work;
}

Future<void> PowerSGDBucket::allreduce_mean_encoded(CompressedReduction& reduction, Tensor tensor) {
  const AllreduceOptions options{.op = ReduceOp::avg};
  co_await reduction.allreduce(tensor, options);
  bytes_sent_ += reduction.stats().bytes_sent;
  encode_time_ += reduction.stats().encode_time;
  decode_time_ += reduction.stats().decode_time;
}

// Encoded factors and uncompressed float32 gradients are averaged by two concurrent operations.
Future<void> PowerSGDBucket::allreduce_p(const std::shared_ptr<ProcessGroup>& group) {
  if (options_.wire == DType::f32) return allreduce_mean(p_message_, group);
  if (plan_.uncompressed_size == 0) return allreduce_mean_encoded(reduction(p_reduction_, group), p_);
  Future<void> rest = allreduce_mean(uncompressed_, group);
  const Future<void> factors = allreduce_mean_encoded(reduction(p_reduction_, group), p_);
  return factors.then([rest](const Future<void>& done) {
    done.value();
    return rest;
  });
}

Future<void> PowerSGDBucket::allreduce_q(const std::shared_ptr<ProcessGroup>& group) {
  if (options_.wire == DType::f32) return allreduce_mean(q_, group);
  return allreduce_mean_encoded(reduction(q_reduction_, group), q_);
}

Tensor PowerSGDBucket::residual() const {
  if (corrected_gradients_.numel() == 0) return Tensor::zeros({static_cast<std::int64_t>(numel_)});
  Tensor result = corrected_gradients_.clone();
  for (const PowerSGDMatrix& matrix : plan_.matrices) {
    float* const m = result.data<float>() + matrix.offset;
    if (factors_valid_)
      subtract_product(matrix, p_.data<const float>() + matrix.p_offset, q_.data<const float>() + matrix.q_offset, m);
    for (std::size_t i = 0; i < matrix.count && !factors_valid_; ++i) m[i] = std::isfinite(m[i]) ? m[i] : 0;
  }
  return result;
}

HookStats PowerSGDBucket::stats() const {
  const double plain = 2.0 * (ranks_ - 1) / ranks_ * 4.0 * static_cast<double>(numel_);
  const std::uint64_t sent = plan_.matrices.empty() ? static_cast<std::uint64_t>(plain) : bytes_sent_;
  HookStats result{.bucket = 0, .values = numel_, .bytes_sent = sent};
  if (sent > 0) result.ratio = plain / static_cast<double>(sent);
  result.encode_time = encode_time_;
  result.decode_time = decode_time_;
  if (corrected_gradients_.numel() > 0) result.residual_norm = std::sqrt(squared_norm(residual()).item<double>());
  return result;
}

}  // namespace hookline::hook
