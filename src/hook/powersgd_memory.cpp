// PowerSGDMemory: step counting, model checks and rebucketing.
#include "hook/powersgd_memory.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include <hookline/core/error.hpp>

namespace hookline::hook {
namespace {

bool is_of(const PowerSGDBucket& kept, const GradBucket& bucket) {
  const BucketLayout &a = *kept.layout(), &b = *bucket.layout();
  return &a == &b || (a.sizes == b.sizes && a.names == b.names);
}

bool has_matrix_at(const PowerSGDPlan& plan, std::size_t offset) {
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
  forget_buckets(std::nullopt);
  if (options.matrix_approximation_rank != options_.matrix_approximation_rank) loose_.q.clear();
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
std::optional<std::uint64_t> PowerSGDMemory::begin(const GradBucket& bucket) {
  const std::lock_guard lock(mutex_);
  if (!step_ && last_index_ && bucket.index() <= *last_index_) ++iter_;
  const std::uint64_t step = step_.value_or(iter_);
  if (!step_) {
    last_index_ = bucket.index();
    if (bucket.is_last()) {
      ++iter_;
      last_index_.reset();
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
  const double rate = after_ > 0 ? static_cast<double>(before_) / static_cast<double>(after_) : 0;
  return {rate, before_, after_};
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

std::shared_ptr<PowerSGDBucket> PowerSGDMemory::of(const GradBucket& bucket, std::uint64_t step, bool batched,
                                                   ProcessGroup& group) {
  const std::lock_guard lock(mutex_);
  const auto found = buckets_.find(bucket.index());
  std::shared_ptr<PowerSGDBucket> kept = found == buckets_.end() ? nullptr : found->second;
  if (!kept || batched != batched_ || !is_of(*kept, bucket)) {
    // Rebucketing replaces all buckets at once, between two steps. Unchanged buckets of this step may already be
    // running.
    forget_buckets(step);
    learn(bucket);
    batched_ = batched;
    const auto count = static_cast<std::size_t>(bucket.buffer().numel());
    PowerSGDPlan plan = batched ? plan_square(count, bucket.index(), options_)
                                : plan_matrices(*bucket.layout(), bucket.index(), options_);
    kept = std::make_shared<PowerSGDBucket>(bucket, std::move(plan), options_, group);
    put_together(*kept, bucket);
    buckets_[bucket.index()] = kept;
  }
  kept->begin(bucket.layout(), step);
  before_ += kept->plan().before;
  after_ += kept->plan().after;
  return kept;
}

// Learns the model from the buckets of the first compressed step. The model is complete when all buckets have been
// seen. If a wrapper withholds some, names may be added later.
void PowerSGDMemory::learn(const GradBucket& bucket) {
  const BucketLayout& layout = *bucket.layout();
  std::map<std::string, Dims> here;
  for (std::size_t i = 0; i < layout.sizes.size(); ++i) {
    const std::string name = gradient_name(layout, bucket.index(), i);
    const auto known = shapes_.find(name);
    if (known == shapes_.end() && shapes_are_all_) {
      throw InvalidArgument(
          fmt::format("the PowerSGD state is of another model: it lacks parameter {} of shape {}. Use one state per "
                      "model",
                      name, to_string(layout.sizes[i])));
    }
    if (known != shapes_.end() && !(known->second == layout.sizes[i])) {
      throw InvalidArgument(
          fmt::format("the PowerSGD state is of another model: parameter {}: expected the shape {}, got {} in the "
                      "state. Use one state per model",
                      name, to_string(layout.sizes[i]), to_string(known->second)));
    }
    here.emplace(name, layout.sizes[i]);
  }
  for (const auto& [name, shape] : here) {
    shapes_.emplace(name, shape);
    seen_.insert(name);
  }
  if (buckets_.size() + 1 < bucket.bucket_count()) return;
  for (const auto& [name, shape] : shapes_) {
    if (seen_.contains(name)) continue;
    throw InvalidArgument(fmt::format(
        "the PowerSGD state is of another model: it has parameter {} of shape {}, which this model lacks. Use one "
        "state per model",
        name, to_string(shape)));
  }
  shapes_are_all_ = true;
}

void PowerSGDMemory::forget_buckets(std::optional<std::uint64_t> but_of_step) {
  take_apart(loose_, but_of_step);
  std::erase_if(buckets_, [&](const auto& bucket) { return bucket.second->step() != but_of_step; });
  seen_.clear();
  for (const auto& [index, kept] : buckets_) {
    for (std::size_t i = 0; i < kept->layout()->sizes.size(); ++i)
      seen_.insert(gradient_name(*kept->layout(), index, i));
  }
}

void PowerSGDMemory::take_apart(Loose& loose, std::optional<std::uint64_t> but_of_step) const {
  for (const auto& [index, kept] : buckets_) {
    if (kept->step() == but_of_step) continue;
    const BucketLayout& layout = *kept->layout();
    const Tensor errors = kept->errors();
    for (std::size_t i = 0; i < layout.lengths.size() && options_.use_error_feedback; ++i) {
      if (!has_matrix_at(kept->plan(), layout.offsets[i])) continue;
      loose.errors[gradient_name(layout, index, i)] = part(errors, layout.offsets[i], layout.lengths[i]);
    }
    const Tensor q = kept->q();
    if (q.numel() == 0 || !options_.warm_start) continue;
    for (const PowerSGDMatrix& matrix : kept->plan().matrices) {
      loose.q[matrix.name] = part(q, matrix.q, matrix.columns * matrix.rank);
    }
  }
}

void PowerSGDMemory::put_together(PowerSGDBucket& kept, const GradBucket& bucket) {
  const BucketLayout& layout = *bucket.layout();
  for (std::size_t i = 0; i < layout.lengths.size() && options_.use_error_feedback; ++i) {
    const auto errors = loose_.errors.find(gradient_name(layout, bucket.index(), i));
    if (errors == loose_.errors.end()) continue;
    const bool fits = static_cast<std::size_t>(errors->second.numel()) == layout.lengths[i];
    if (fits && has_matrix_at(kept.plan(), layout.offsets[i])) {
      part(kept.kept(), layout.offsets[i], layout.lengths[i]).copy_from(errors->second);
    }
    loose_.errors.erase(errors);
  }
  for (const PowerSGDMatrix& matrix : kept.plan().matrices) {
    const auto q = loose_.q.find(matrix.name);
    if (q == loose_.q.end()) continue;
    if (static_cast<std::size_t>(q->second.numel()) == matrix.columns * matrix.rank) kept.set_q(matrix, q->second);
    loose_.q.erase(q);
  }
}

std::vector<HookCost> PowerSGDMemory::costs() const {
  const std::lock_guard lock(mutex_);
  std::vector<HookCost> all;
  for (const auto& [index, kept] : buckets_) {
    all.push_back(kept->cost());
    all.back().bucket = index;
  }
  return all;
}

std::map<std::size_t, PowerSGDState::Kept> PowerSGDMemory::kept() const {
  const std::lock_guard lock(mutex_);
  std::map<std::size_t, PowerSGDState::Kept> all;
  for (const auto& [index, bucket] : buckets_) all[index] = {bucket->errors(), bucket->p(), bucket->q()};
  return all;
}

}  // namespace hookline::hook
