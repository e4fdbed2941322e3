// The PowerSGD hook: compute P, allreduce P, compute Q, allreduce Q, reconstruct.
#include <hookline/hook/powersgd.hpp>

#include <hookline/core/error.hpp>
#include <hookline/hook/hook_state.hpp>

#include "group/abort_quietly.hpp"
#include "group/float32.hpp"
#include "hook/powersgd_memory.hpp"

namespace hookline {
namespace {

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
std::map<std::size_t, PowerSGDState::Kept> PowerSGDState::kept() const { return memory_->kept(); }
void PowerSGDState::save(StateWriter& to) const { memory_->save(to); }
void PowerSGDState::load(StateReader& from) { memory_->load(from); }

PowerSGDHook::PowerSGDHook(std::shared_ptr<PowerSGDState> state, bool batched, std::shared_ptr<ProcessGroup> group)
    : CppCommHookInterface(std::move(state), {.name = batched ? "batched_powersgd" : "powersgd"}),
      group_(group_for(state_, std::move(group))),
      batched_(batched) {}

// The rows of a sparse gradient change in each step, so it has no residual and is not compressed.
Future<HookResult> PowerSGDHook::run_hook(GradBucket& bucket) {
  const std::optional<std::uint64_t> step = state_->memory_->begin(bucket);
  std::shared_ptr<hook::PowerSGDBucket> kept;
  if (step && is_floating(bucket.buffer().dtype()) && !bucket.sparse_grad_indices()) {
    kept = state_->memory_->of(bucket, *step, batched_, *group_);
    if (bucket.is_last()) state_->memory_->report(*step);
  }
  if (!kept || kept->plan().matrices.empty()) {
    const AllreduceOptions options{.op = ReduceOp::avg};
    const WorkPtr work = group_->allreduce(bucket.buffer(), options);
    co_await work;
    co_return bucket.buffer();
  }
  const Tensor values = group::as_float32(bucket.buffer());
  kept->project(values.data<float>(), *step);
  co_await kept->reduce_first(group_);
  kept->turn(values.data<float>());
  co_await kept->reduce_second(group_);
  kept->expand(values.data<float>());
  group::from_float32(values, bucket.buffer());
  co_return bucket.buffer();
}

void PowerSGDHook::begin_step(const HookStep&) { state_->memory_->begin_step(); }
void PowerSGDHook::end_step(const HookStep&) { state_->memory_->end_step(); }

void PowerSGDHook::give_up(const std::string& cause) { group::abort_quietly(*group_, cause); }

bool PowerSGDHook::keep_error() {
  PowerSGDOptions options = state_->options();
  if (options.use_error_feedback) return true;
  options.use_error_feedback = true;
  state_->set_options(options);
  return true;
}

std::vector<HookCost> PowerSGDHook::costs() const { return state_->memory_->costs(); }

void PowerSGDHook::save(StateWriter& to) const { state_->save(to); }
void PowerSGDHook::load(StateReader& from) { state_->load(from); }

}  // namespace hookline
