// Post-local SGD (Lin et al. 2020): selects the group over which a bucket is averaged.
#include <hookline/hook/post_local_sgd.hpp>

#include <fmt/format.h>

#include <hookline/core/error.hpp>
#include <hookline/group/subgroups.hpp>
#include <hookline/hook/hook_state.hpp>

#include "group/abort_quietly.hpp"

namespace hookline {
namespace {

std::shared_ptr<ProcessGroup> checked_group(std::shared_ptr<ProcessGroup> group, std::int64_t start) {
  if (!group) throw InvalidArgument("post_local_sgd: process group must not be null");
  if (start < 0) {
    throw InvalidArgument(fmt::format("post_local_sgd: start_localSGD_iter: expected at least 0 steps, got {}", start));
  }
  return group;
}

// Uses the bucket's lane if the group has it, else lane 0. Buckets start in the same order on every rank.
WorkPtr mean_over(ProcessGroup& group, const Tensor& buffer) {
  CallContext context = current_context();
  if (context.lane >= group.capabilities().lanes) context.lane = 0;
  const ContextScope scope(std::move(context));
  return group.allreduce(buffer, {.op = ReduceOp::avg});
}

}  // namespace

PostLocalSGDState::PostLocalSGDState(std::shared_ptr<ProcessGroup> group, std::shared_ptr<ProcessGroup> given_subgroup,
                                     std::int64_t start_iter, bool gradient_allreduce)
    : process_group(checked_group(std::move(group), start_iter)),
      subgroup(given_subgroup || !gradient_allreduce ? std::move(given_subgroup) : local_group(process_group)),
      start_localSGD_iter(static_cast<std::uint64_t>(start_iter)),
      post_local_gradient_allreduce(gradient_allreduce) {}

PostLocalSGDHook::PostLocalSGDHook(std::shared_ptr<PostLocalSGDState> state)
    : CppCommHookInterface(std::move(state), {.name = "post_local_sgd"}) {
  if (!state_) throw InvalidArgument("hook post_local_sgd: state must not be null");
}

Future<HookResult> PostLocalSGDHook::run_hook(GradBucket& bucket) {
  const bool local = step_.value_or(state_->iter) >= state_->start_localSGD_iter;
  if (!step_ && bucket.is_last()) ++state_->iter;
  if (local && !state_->post_local_gradient_allreduce) co_return bucket.buffer();
  ProcessGroup& group = local ? *state_->subgroup : *state_->process_group;
  const WorkPtr work = mean_over(group, bucket.buffer());
  co_await work;
  co_return bucket.buffer();
}

// Counts steps here and not in run_hook(): a sparse bucket first waits for its row union, so hooks may run out of
// order.
void PostLocalSGDHook::begin_step(const HookStep&) { step_ = state_->iter++; }
void PostLocalSGDHook::end_step(const HookStep&) { step_.reset(); }

void PostLocalSGDHook::on_step_failed(const std::string& cause) {
  if (state_->subgroup) group::abort_quietly(*state_->subgroup, cause);
}

void PostLocalSGDHook::save(StateWriter& writer) const { writer.integer(state_->iter.load()); }
void PostLocalSGDHook::load(StateReader& reader) { state_->iter = reader.integer(); }

}  // namespace hookline
