// The PowerSGD hook: compute P, allreduce P, compute Q, allreduce Q, reconstruct.
#include <hookline/hook/powersgd.hpp>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

#include "group/abort_quietly.hpp"
#include "group/float32.hpp"
#include "hook/powersgd_memory.hpp"

namespace hookline {
namespace {

constexpr std::string_view kPowerSGDMagic = "hookline PowerSGD state 1";

std::shared_ptr<ProcessGroup> group_for(const std::shared_ptr<PowerSGDState>& state,
                                        std::shared_ptr<ProcessGroup> group) {
  if (!state) throw InvalidArgument("hook powersgd: state must not be null");
  if (state->group()) group = state->group();
  if (!group) throw InvalidArgument("hook powersgd: expected a process group for the hook or its state, got none");
  return group;
}

}  // namespace

PowerSGDState::PowerSGDState(std::shared_ptr<ProcessGroup> group, const PowerSGDOptions& options)
    : group_(std::move(group)), memory_(std::make_unique<hook::PowerSGDMemory>(options)) {}
PowerSGDState::~PowerSGDState() = default;

std::shared_ptr<ProcessGroup> PowerSGDState::group() const { return group_; }
void PowerSGDState::set_group(std::shared_ptr<ProcessGroup> group) { group_ = std::move(group); }
PowerSGDOptions PowerSGDState::options() const { return memory_->options(); }
void PowerSGDState::set_options(const PowerSGDOptions& options) { memory_->set_options(options); }
std::uint64_t PowerSGDState::iter() const { return memory_->iter(); }
PowerSGDState::Totals PowerSGDState::compression_stats() const { return memory_->totals(); }
void PowerSGDState::set_report(Report report) { memory_->set_report(std::move(report)); }
std::uint64_t PowerSGDState::next_report() const { return memory_->next_report(); }
std::map<std::size_t, PowerSGDState::BucketState> PowerSGDState::bucket_states() const {
  return memory_->bucket_states();
}

std::vector<std::byte> save_state(const PowerSGDState& state) {
  StateWriter writer;
  writer.text(kPowerSGDMagic);
  state.memory_->save(writer);
  return std::move(writer).state();
}

void load_state(PowerSGDState& state, std::span<const std::byte> saved) {
  StateReader reader(saved);
  if (reader.text() != kPowerSGDMagic) throw InvalidArgument("load_state: these bytes are not a PowerSGDState");
  state.memory_->load(reader);
  reader.expect_end();
}

PowerSGDHook::PowerSGDHook(std::shared_ptr<PowerSGDState> state, bool batched, std::shared_ptr<ProcessGroup> group)
    : CppCommHookInterface(std::move(state), {.name = batched ? "batched_powersgd" : "powersgd"}),
      group_(group_for(state_, std::move(group))),
      batched_(batched) {}

// The rows of a sparse gradient change in each step, so it has no residual and is not compressed.
Future<HookResult> PowerSGDHook::run_hook(GradBucket& bucket) {
  const std::optional<std::uint64_t> step = state_->memory_->begin_bucket(bucket);
  std::shared_ptr<hook::PowerSGDBucket> bucket_state;
  if (step && is_floating(bucket.buffer().dtype()) && !bucket.sparse_grad_indices()) {
    bucket_state = state_->memory_->bucket_state(bucket, *step, batched_, *group_);
    if (bucket.is_last()) state_->memory_->report(*step);
  }
  if (!bucket_state || bucket_state->plan().matrices.empty()) {
    const AllreduceOptions options{.op = ReduceOp::avg};
    const WorkPtr work = group_->allreduce(bucket.buffer(), options);
    co_await work;
    co_return bucket.buffer();
  }
  const Tensor values = group::as_float32(bucket.buffer());
  bucket_state->compute_p(values.data<float>(), *step);
  co_await bucket_state->allreduce_p(group_);
  bucket_state->compute_q(values.data<float>());
  co_await bucket_state->allreduce_q(group_);
  bucket_state->reconstruct(values.data<float>());
  group::from_float32(values, bucket.buffer());
  co_return bucket.buffer();
}

void PowerSGDHook::begin_step(const HookStep&) { state_->memory_->begin_step(); }
void PowerSGDHook::end_step(const HookStep&) { state_->memory_->end_step(); }

void PowerSGDHook::on_step_failed(const std::string& cause) { group::abort_quietly(*group_, cause); }

bool PowerSGDHook::enable_error_feedback() {
  PowerSGDOptions options = state_->options();
  if (options.use_error_feedback) return true;
  options.use_error_feedback = true;
  state_->set_options(options);
  return true;
}

std::vector<HookStats> PowerSGDHook::stats() const { return state_->memory_->stats(); }

void PowerSGDHook::save(StateWriter& writer) const { state_->memory_->save(writer); }
void PowerSGDHook::load(StateReader& reader) { state_->memory_->load(reader); }

}  // namespace hookline
