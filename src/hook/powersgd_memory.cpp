// PowerSGDMemory: step counting, model checks and rebucketing.
#include "hook/powersgd_memory.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::hook {
namespace {

bool has_layout(const PowerSGDBucket& state, const GradBucket& bucket) {
  const BucketLayout &a = *state.layout(), &b = *bucket.layout();
  return &a == &b || (a.sizes == b.sizes && a.names == b.names);
}

bool is_compressed_at(const PowerSGDPlan& plan, std::size_t offset) {
  for (const PowerSGDMatrix& matrix : plan.matrices) {
    if (matrix.offset <= offset && offset < matrix.offset + matrix.count) return true;
  }
  return false;
}

}  // namespace

PowerSGDMemory::PowerSGDMemory(const PowerSGDOptions& options) : options_(options) { check(options); }

PowerSGDOptions PowerSGDMemory::options() const {
  const std::lock_guard lock(mutex_);
  return options_;
}

void PowerSGDMemory::set_options(const PowerSGDOptions& options) {
  check(options);
  const std::lock_guard lock(mutex_);
  drop_buckets(std::nullopt);
  if (options.matrix_approximation_rank != options_.matrix_approximation_rank) unassigned_.q.clear();
  options_ = options;
}

void PowerSGDMemory::begin_step() {
  const std::lock_guard lock(mutex_);
  step_ = iter_++;
}

void PowerSGDMemory::end_step() {
  const std::lock_guard lock(mutex_);
  step_.reset();
}

// Outside a reducer, buckets arrive in index order and the last one ends the step. If a wrapper withholds the last
// bucket, an index that does not increase starts the next step.
std::optional<std::uint64_t> PowerSGDMemory::begin_bucket(const GradBucket& bucket) {
  const std::lock_guard lock(mutex_);
  if (!step_ && last_bucket_index_ && bucket.index() <= *last_bucket_index_) ++iter_;
  const std::uint64_t step = step_.value_or(iter_);
  if (!step_) {
    last_bucket_index_ = bucket.index();
    if (bucket.is_last()) {
      ++iter_;
      last_bucket_index_.reset();
    }
  }
  if (step < static_cast<std::uint64_t>(options_.start_powerSGD_iter)) return std::nullopt;
  return step;
}

std::uint64_t PowerSGDMemory::iter() const {
  const std::lock_guard lock(mutex_);
  return iter_;
}

PowerSGDState::Totals PowerSGDMemory::totals() const {
  const std::lock_guard lock(mutex_);
  const double rate = numel_after_ > 0 ? static_cast<double>(numel_before_) / static_cast<double>(numel_after_) : 0;
  return {rate, numel_before_, numel_after_};
}

void PowerSGDMemory::set_report(PowerSGDState::Report report) {
  const std::lock_guard lock(mutex_);
  report_ = std::move(report);
}

std::uint64_t PowerSGDMemory::next_report() const {
  const std::lock_guard lock(mutex_);
  return next_report_;
}

void PowerSGDMemory::report(std::uint64_t step) {
  PowerSGDState::Report report;
  {
    const std::lock_guard lock(mutex_);
    if (step < next_report_) return;
    const std::int64_t frequency = options_.compression_stats_logging_frequency;
    next_report_ = step + static_cast<std::uint64_t>(std::max<std::int64_t>(1, frequency));
    report = report_;
  }
  if (report) report(step, totals());
}

std::shared_ptr<PowerSGDBucket> PowerSGDMemory::bucket_state(const GradBucket& bucket, std::uint64_t step, bool batched,
                                                             ProcessGroup& group) {
  const std::lock_guard lock(mutex_);
  const auto found = buckets_.find(bucket.index());
  std::shared_ptr<PowerSGDBucket> state = found == buckets_.end() ? nullptr : found->second;
  if (!state || batched != batched_ || !has_layout(*state, bucket)) {
    // The layout changes between two steps only. Buckets of earlier steps are removed; their state moves to
    // `unassigned_`. Buckets that this step has already used are kept: they may still be running.
    drop_buckets(step);
    register_parameters(bucket);
    batched_ = batched;
    const auto count = static_cast<std::size_t>(bucket.buffer().numel());
    PowerSGDPlan plan = batched ? plan_square(count, bucket.index(), options_)
                                : plan_matrices(*bucket.layout(), bucket.index(), options_);
    state = std::make_shared<PowerSGDBucket>(bucket, std::move(plan), options_, group);
    restore(*state, bucket);
    buckets_[bucket.index()] = state;
  }
  state->begin_step(bucket.layout(), step);
  numel_before_ += state->plan().numel_before;
  numel_after_ += state->plan().numel_after;
  return state;
}

// Learns the model from the buckets of the first compressed step. The model is complete when all buckets have been
// seen. If a wrapper withholds some, names may be added later.
void PowerSGDMemory::register_parameters(const GradBucket& bucket) {
  const BucketLayout& layout = *bucket.layout();
  std::map<std::string, Dims> here;
  for (std::size_t i = 0; i < layout.sizes.size(); ++i) {
    const std::string name = gradient_name(layout, bucket.index(), i);
    const auto known = shapes_.find(name);
    if (known == shapes_.end() && shapes_complete_) {
      throw InvalidArgument(
          fmt::format("the PowerSGD state does not match the model: it lacks parameter {} of shape {}. Use one state "
                      "per model.",
                      name, to_string(layout.sizes[i])));
    }
    if (known != shapes_.end() && !(known->second == layout.sizes[i])) {
      throw InvalidArgument(
          fmt::format("the PowerSGD state does not match the model: parameter {}: expected the shape {}, got {} in the "
                      "state. Use one state per model.",
                      name, to_string(layout.sizes[i]), to_string(known->second)));
    }
    here.emplace(name, layout.sizes[i]);
  }
  for (const auto& [name, shape] : here) {
    shapes_.emplace(name, shape);
    seen_names_.insert(name);
  }
  if (buckets_.size() + 1 < bucket.bucket_count()) return;
  for (const auto& [name, shape] : shapes_) {
    if (seen_names_.contains(name)) continue;
    throw InvalidArgument(fmt::format(
        "the PowerSGD state does not match the model: it has parameter {} of shape {}, which this model lacks. Use one "
        "state per model.",
        name, to_string(shape)));
  }
  shapes_complete_ = true;
}

void PowerSGDMemory::drop_buckets(std::optional<std::uint64_t> except_step) {
  export_state(unassigned_, except_step);
  std::erase_if(buckets_, [&](const auto& bucket) { return bucket.second->step() != except_step; });
  seen_names_.clear();
  for (const auto& [index, kept] : buckets_) {
    for (std::size_t i = 0; i < kept->layout()->sizes.size(); ++i)
      seen_names_.insert(gradient_name(*kept->layout(), index, i));
  }
}

void PowerSGDMemory::export_state(Unassigned& unassigned, std::optional<std::uint64_t> except_step) const {
  for (const auto& [index, kept] : buckets_) {
    if (kept->step() == except_step) continue;
    const BucketLayout& layout = *kept->layout();
    const Tensor residual = kept->residual();
    for (std::size_t i = 0; i < layout.lengths.size() && options_.use_error_feedback; ++i) {
      if (!is_compressed_at(kept->plan(), layout.offsets[i])) continue;
      unassigned.residuals[gradient_name(layout, index, i)] =
          flat_slice(residual, layout.offsets[i], layout.lengths[i]);
    }
    const Tensor q = kept->q();
    if (q.numel() == 0 || !options_.warm_start) continue;
    for (const PowerSGDMatrix& matrix : kept->plan().matrices) {
      unassigned.q[matrix.name] = flat_slice(q, matrix.q_offset, matrix.columns * matrix.rank);
    }
  }
}

void PowerSGDMemory::restore(PowerSGDBucket& bucket_state, const GradBucket& bucket) {
  const BucketLayout& layout = *bucket.layout();
  for (std::size_t i = 0; i < layout.lengths.size() && options_.use_error_feedback; ++i) {
    const auto residual = unassigned_.residuals.find(gradient_name(layout, bucket.index(), i));
    if (residual == unassigned_.residuals.end()) continue;
    const bool fits = static_cast<std::size_t>(residual->second.numel()) == layout.lengths[i];
    if (fits && is_compressed_at(bucket_state.plan(), layout.offsets[i])) {
      flat_slice(bucket_state.corrected_gradients(), layout.offsets[i], layout.lengths[i]).copy_from(residual->second);
    }
    unassigned_.residuals.erase(residual);
  }
  for (const PowerSGDMatrix& matrix : bucket_state.plan().matrices) {
    const auto q = unassigned_.q.find(matrix.name);
    if (q == unassigned_.q.end()) continue;
    if (static_cast<std::size_t>(q->second.numel()) == matrix.columns * matrix.rank)
      bucket_state.set_q(matrix, q->second);
    unassigned_.q.erase(q);
  }
}

std::vector<HookStats> PowerSGDMemory::stats() const {
  const std::lock_guard lock(mutex_);
  std::vector<HookStats> all;
  for (const auto& [index, kept] : buckets_) {
    all.push_back(kept->stats());
    all.back().bucket = index;
  }
  return all;
}

std::map<std::size_t, PowerSGDState::BucketState> PowerSGDMemory::bucket_states() const {
  const std::lock_guard lock(mutex_);
  std::map<std::size_t, PowerSGDState::BucketState> all;
  for (const auto& [index, bucket] : buckets_) all[index] = {bucket->residual(), bucket->p(), bucket->q()};
  return all;
}

}  // namespace hookline::hook
