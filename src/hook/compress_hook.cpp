// CompressHook: one CompressedReduction per bucket.
#include <hookline/hook/compress_hook.hpp>

#include <algorithm>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

#include "hook/residual_store.hpp"

namespace hookline {
namespace {

std::string name_of(const CodecPtr& codec) {
  if (!codec) throw InvalidArgument("CompressHook: codec must not be null");
  return codec->name();
}

}  // namespace

CompressHook::CompressHook(std::shared_ptr<ProcessGroup> group, CodecPtr codec, std::uint64_t seed)
    : CppCommHookInterface(std::move(group), {.name = name_of(codec)}),
      codec_(std::move(codec)),
      seed_(seed),
      residuals_(std::make_unique<hook::ResidualStore>()) {
  if (!state_) throw InvalidArgument("hook " + codec_->name() + ": process group must not be null");
}

CompressHook::~CompressHook() = default;

bool CompressHook::enable_error_feedback() {
  error_feedback_ = true;
  reductions_.clear();
  return true;
}

// The rows of a sparse gradient change in each step, so it has no residual.
CompressedReduction& CompressHook::reduction_of(const GradBucket& bucket) {
  const std::lock_guard lock(mutex_);
  const bool feeds_back = error_feedback_ && !bucket.sparse_grad_indices();
  std::unique_ptr<CompressedReduction>& found = reductions_[bucket.index()];
  // Rebucketing may turn a dense bucket into a sparse one and vice versa.
  if (!found || feeds_back != (found->residual().numel() > 0)) {
    const std::uint64_t steps = found ? found->step() : steps_;
    const CompressionOptions options{.error_feedback = feeds_back, .seed = seed_, .bucket = bucket.index()};
    found = std::make_unique<CompressedReduction>(state_, codec_, options);
    found->set_step(steps);
  }
  if (step_) found->set_step(*step_);
  if (feeds_back) found->set_residual(residuals_->residual_of(bucket));
  return *found;
}

Future<HookResult> CompressHook::run_hook(GradBucket& bucket) {
  const AllreduceOptions options{.op = ReduceOp::avg};
  co_await reduction_of(bucket).allreduce(bucket.buffer(), options);
  co_return bucket.buffer();
}

void CompressHook::begin_step(const HookStep&) {
  const std::lock_guard lock(mutex_);
  step_ = steps_++;
}

void CompressHook::end_step(const HookStep&) {
  const std::lock_guard lock(mutex_);
  step_.reset();
}

std::vector<HookStats> CompressHook::stats() const {
  const std::lock_guard lock(mutex_);
  std::vector<HookStats> all;
  for (const auto& [index, reduction] : reductions_) {
    const CompressionStats& stats = reduction->stats();
    all.push_back({.bucket = index,
                   .values = stats.values,
                   .bytes_sent = stats.bytes_sent,
                   .ratio = stats.ratio,
                   .encode_time = stats.encode_time,
                   .decode_time = stats.decode_time,
                   .residual_norm = reduction->residual_norm()});
  }
  return all;
}

void CompressHook::save(StateWriter& writer) const {
  const std::lock_guard lock(mutex_);
  std::uint64_t steps = steps_;
  for (const auto& [index, reduction] : reductions_) steps = std::max(steps, reduction->step());
  writer.integer(seed_);
  writer.integer(steps);
  writer.boolean(error_feedback_);
  residuals_->save(writer);
}

void CompressHook::load(StateReader& reader) {
  const std::uint64_t seed = reader.integer();
  const std::uint64_t steps = reader.integer();
  if (seed != seed_)
    throw InvalidArgument(fmt::format("load_state: expected a state of seed {}, got one of seed {}", seed_, seed));
  if (reader.boolean() != error_feedback_) {
    throw InvalidArgument(std::string("load_state: expected the state of a hook with") +
                          (error_feedback_ ? "" : "out") + " error feedback, got one with" +
                          (error_feedback_ ? "out" : ""));
  }
  const std::lock_guard lock(mutex_);
  residuals_->load(reader);
  reductions_.clear();
  steps_ = steps;
}

}  // namespace hookline
